builtin.module {
  func.func @as_nested(%x0: !ptensor.ptensor<6 x f32>, %x1: !ptensor.ptensor<5 x i64>) -> !ptensor.ptensor<4 x @p0 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = from_offsets(call("from_offsets", tuple("values", tuple(tuple(), tuple(6), tuple(0), none)), tuple("offsets", tuple(tuple(), tuple(5), tuple(0), "x1"))), "#1"), components = 4, capacity = 6>]} {
    %v0 = "ptensor.as_nested"(%x0, %x1) {kind = "from_offsets", values = #ptensor.term<operand(0)>, offsets = #ptensor.term<operand(1)>} : (!ptensor.ptensor<6 x f32>, !ptensor.ptensor<5 x i64>) -> !ptensor.ptensor<4 x @p0 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x f32>
  }
  func.func @flatten(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<values(@p0) x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.flatten"(%x0) : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<values(@p0) x 2 x f32>
    func.return %v0 : !ptensor.ptensor<values(@p0) x 2 x f32>
  }
  func.func @to_dense(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x longest(@p0) x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.to_dense"(%x0) : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x longest(@p0) x 2 x f32>
    func.return %v0 : !ptensor.ptensor<4 x longest(@p0) x 2 x f32>
  }
  func.func @scan(%x0: !ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x @p0 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.scan"(%x0) {sop = "cumulative_sum", axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x @p0 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x f32>
  }
  func.func @attention(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.attention"(%x0, %x0, %x0) : (!ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x 2 x f32>
  }
  func.func @group_by(%x0: !ptensor.ptensor<3 x 4 x f32>, %x1: !ptensor.ptensor<3 x i64>) -> !ptensor.ptensor<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = group_by(call("group_by", tuple("values", tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple("keys", tuple(tuple(), tuple(3), tuple(0), "x1")), tuple("num_groups", tuple(class("builtins:int"), 3))), "#2"), components = 3, capacity = count("group_by", call("group_by", tuple("values", tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple("keys", tuple(tuple(), tuple(3), tuple(0), "x1")), tuple("num_groups", tuple(class("builtins:int"), 3))), "#1", "group_by")>]} {
    %v0 = "ptensor.group_by"(%x0, %x1) {num_groups = 3 : i64} : (!ptensor.ptensor<3 x 4 x f32>, !ptensor.ptensor<3 x i64>) -> !ptensor.ptensor<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>
    func.return %v0 : !ptensor.ptensor<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>
  }
  func.func @ungroup(%x0: !ptensor.ptensor<3 x 4 x f32>, %x1: !ptensor.ptensor<3 x i64>) -> !ptensor.ptensor<3 x 4 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = group_by(call("group_by", tuple("values", tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple("keys", tuple(tuple(), tuple(3), tuple(0), "x1")), tuple("num_groups", tuple(class("builtins:int"), 3))), "#2"), components = 3, capacity = count("group_by", call("group_by", tuple("values", tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple("keys", tuple(tuple(), tuple(3), tuple(0), "x1")), tuple("num_groups", tuple(class("builtins:int"), 3))), "#1", "group_by")>]} {
    %v0 = "ptensor.group_by"(%x0, %x1) {num_groups = 3 : i64} : (!ptensor.ptensor<3 x 4 x f32>, !ptensor.ptensor<3 x i64>) -> !ptensor.ptensor<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>
    %v1 = "ptensor.elementwise_binary_op"(%v0) {ebop = "multiply", rhs = 2 : i64} : (!ptensor.ptensor<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>) -> !ptensor.ptensor<3 x @p0 x 4 x f32>
    %v2 = "ptensor.call"(%v0, %v1) {callee = "x.ungroup", function = #ptensor.term<function("serrate.lowering.parts:ungroup")>} : (!ptensor.ptensor<3 x @p0 x 4 x f32, origin = record("serrate.ops.grouping:RouteType", tuple(), tuple(0, 1), tuple(3), none, @p0, type("!ptensor.ptensor<count(\22group_by\22, call(\22group_by\22, tuple(\22values\22, tuple(tuple(), tuple(3, 4), tuple(0, 1), none)), tuple(\22keys\22, tuple(tuple(), tuple(3), tuple(0), \22x1\22)), tuple(\22num_groups\22, tuple(class(\22builtins:int\22), 3))), \22#1\22, \22group_by\22) x i64>"), none)>, !ptensor.ptensor<3 x @p0 x 4 x f32>) -> !ptensor.ptensor<3 x 4 x f32>
    func.return %v2 : !ptensor.ptensor<3 x 4 x f32>
  }
  func.func @from_dense(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>, %x1: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.to_dense"(%x0) : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x longest(@p0) x 2 x f32>
    %v1 = "ptensor.elementwise_binary_op"(%v0) {ebop = "multiply", rhs = 2 : i64} : (!ptensor.ptensor<4 x longest(@p0) x 2 x f32>) -> !ptensor.ptensor<4 x longest(@p0) x 2 x f32>
    %v2 = "ptensor.from_dense"(%v1, %x1) {like = #ptensor.term<operand(1)>, form = ["dense", "like="]} : (!ptensor.ptensor<4 x longest(@p0) x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    func.return %v2 : !ptensor.ptensor<4 x @p0 x 2 x f32>
  }
  func.func @call(%x0: !ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x @p0 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.call"(%x0) {callee = "softmax", named = #ptensor.term<dict("axis", 1)>} : (!ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x @p0 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x f32>
  }
}
