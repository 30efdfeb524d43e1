builtin.module {
  func.func @as_nested(%x0: tensor<6xf32>, %x1: tensor<5xi64>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = from_offsets(call("from_offsets", tuple("values", tuple(tuple(), tuple(6), tuple(0), none)), tuple("offsets", tuple(tuple(), tuple(5), tuple(0), "x1"))), "#1"), components = 4, capacity = 6>]} {
    %v0 = "host.call"(%x0, %x1) {callee = "from_offsets", region = "from_offsets#1"} : (tensor<6xf32>, tensor<5xi64>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
    func.return %v0 : tensor<?xf32, #host.layout<4 x @p0 x f32>>
  }
  func.func @flatten(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<values(@p0) x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.call"(%x0) {callee = "Tensor.flat", region = "Tensor.flat#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<values(@p0) x 2 x f32>>
    func.return %v0 : tensor<?x2xf32, #host.layout<values(@p0) x 2 x f32>>
  }
  func.func @to_dense(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "Tensor.to_dense", region = "Tensor.to_dense#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>>
      "host.yield"(%v0_1) : (tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>>
    func.return %v0 : tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>>
  }
  func.func @scan(%x0: tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?xf32, #host.layout<4 x @p0 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "cumulative_sum", named = #ptensor.term<dict("axis", 1)>, region = "cumulative_sum#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      "host.yield"(%v0_1) : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> ()
    }) : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
    func.return %v0 : tensor<?xf32, #host.layout<4 x @p0 x f32>>
  }
  func.func @attention(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.call"(%x0, %x0, %x0) {callee = "attention", region = "attention#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    func.return %v0 : tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
  }
  func.func @group_by(%x0: tensor<3x4xf32>, %x1: tensor<3xi64>) -> tensor<?x4xf32, #host.layout<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = group_by(call("group_by", tuple("values", tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple("keys", tuple(tuple(), tuple(3), tuple(0), "x1")), tuple("num_groups", tuple(class("builtins:int"), 3))), "#2"), components = 3, capacity = count("group_by", call("group_by", tuple("values", tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple("keys", tuple(tuple(), tuple(3), tuple(0), "x1")), tuple("num_groups", tuple(class("builtins:int"), 3))), "#1", "group_by")>]} {
    %v0 = "host.call"(%x0, %x1) {callee = "group_by", arguments = #ptensor.term<tuple(operand(0), operand(1), 3)>, region = "group_by#1"} : (tensor<3x4xf32>, tensor<3xi64>) -> tensor<?x4xf32, #host.layout<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>>
    func.return %v0 : tensor<?x4xf32, #host.layout<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>>
  }
  func.func @ungroup(%x0: tensor<3x4xf32>, %x1: tensor<3xi64>) -> tensor<3x4xf32> attributes {host.partitions = [#ptensor.partition<name = @p0, of = group_by(call("group_by", tuple("values", tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple("keys", tuple(tuple(), tuple(3), tuple(0), "x1")), tuple("num_groups", tuple(class("builtins:int"), 3))), "#2"), components = 3, capacity = count("group_by", call("group_by", tuple("values", tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple("keys", tuple(tuple(), tuple(3), tuple(0), "x1")), tuple("num_groups", tuple(class("builtins:int"), 3))), "#1", "group_by")>]} {
    %v0 = "host.call"(%x0, %x1) {callee = "group_by", arguments = #ptensor.term<tuple(operand(0), operand(1), 3)>, region = "group_by#1"} : (tensor<3x4xf32>, tensor<3xi64>) -> tensor<?x4xf32, #host.layout<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>>
    %v1 = "host.call"(%v0) {callee = "multiply", arguments = #ptensor.term<tuple(operand(0), 2)>, region = "multiply#1"} : (tensor<?x4xf32, #host.layout<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>>) -> tensor<?x4xf32, #host.layout<3 x @p0 x 4 x f32>>
    %v2 = "host.call"(%v0, %v1) {callee = "x.ungroup", function = #ptensor.term<function("serrate.lowering.parts:ungroup")>, region = "x.ungroup#1"} : (tensor<?x4xf32, #host.layout<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>>, tensor<?x4xf32, #host.layout<3 x @p0 x 4 x f32>>) -> tensor<3x4xf32>
    func.return %v2 : tensor<3x4xf32>
  }
  func.func @from_dense(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v2 = "host.fused"(%x0, %x1) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0 = "host.call"(%x0_1) {callee = "Tensor.to_dense", region = "Tensor.to_dense#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>>
      %v1 = "host.call"(%v0) {callee = "multiply", arguments = #ptensor.term<tuple(operand(0), 2)>, region = "multiply#1"} : (tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>>) -> tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>>
      %v2_1 = "host.call"(%v1, %x1_1) {callee = "from_dense", named = #ptensor.term<dict("like", operand(1))>, region = "from_dense#1"} : (tensor<4x?x2xf32, #host.layout<4 x longest(@p0) x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
      "host.yield"(%v2_1) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    func.return %v2 : tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
  }
  func.func @call(%x0: tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?xf32, #host.layout<4 x @p0 x f32>>):
      %v1 = "host.call"(%x0_1) {callee = "max", named = #ptensor.term<dict("axis", 1)>, region = "softmax#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<4xf32>
      %v2 = "host.call"(%v1) {callee = "Tensor.detach", region = "softmax#1"} : (tensor<4xf32>) -> tensor<4xf32>
      %v3 = "host.call"(%v2, %x0_1) {callee = "expand_like", named = #ptensor.term<dict("axis", 1)>, region = "softmax#1"} : (tensor<4xf32>, tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      %v4 = "host.call"(%x0_1, %v3) {callee = "subtract", region = "softmax#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>, tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      %v5 = "host.call"(%v4) {callee = "exp", region = "softmax#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      %v6 = "host.call"(%v5) {callee = "sum", named = #ptensor.term<dict("axis", 1)>, region = "softmax#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<4xf32>
      %v7 = "host.call"(%v6, %v5) {callee = "expand_like", named = #ptensor.term<dict("axis", 1)>, region = "softmax#1"} : (tensor<4xf32>, tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      %v8 = "host.call"(%v5, %v7) {callee = "divide", region = "softmax#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>, tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      %v0_1 = "host.call"(%v8) {callee = "astype", arguments = #ptensor.term<tuple(operand(0), dtype("float32"))>, region = "softmax#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      "host.yield"(%v0_1) : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> ()
    }) : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
    func.return %v0 : tensor<?xf32, #host.layout<4 x @p0 x f32>>
  }
}
