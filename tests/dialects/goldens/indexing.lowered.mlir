builtin.module {
  func.func @extract_slice(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = at_most(@p0, 2), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "Tensor.getitem", arguments = #ptensor.term<tuple(operand(0), tuple(slice(none, none, none), slice(none, 2, none)))>, region = "Tensor.getitem#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>>
      "host.yield"(%v0_1) : (tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>>
    func.return %v0 : tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>>
  }
  func.func @extract_slice_by_numbers(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1: tensor<2xi64>) -> tensor<?x2xf32, #host.layout<2 x @p1 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = made(call("Tensor.getitem", tuple("x", tuple(tuple(4, ragged(@p0, 0)), tuple(2), tuple(0, 1, 2), none)), tuple("key", tuple(tuple(), tuple(2), tuple(0), "x1"))), "#1"), kind = "Tensor.getitem", components = 2>]} {
    %v0 = "host.call"(%x0, %x1) {callee = "Tensor.getitem", region = "Tensor.getitem#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<2xi64>) -> tensor<?x2xf32, #host.layout<2 x @p1 x 2 x f32>>
    func.return %v0 : tensor<?x2xf32, #host.layout<2 x @p1 x 2 x f32>>
  }
  func.func @insert_slice(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "multiply", arguments = #ptensor.term<tuple(operand(0), 1)>, region = "multiply#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
      "host.yield"(%v0_1) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    %v1 = "host.call"(%v0) {callee = "Tensor.setitem", arguments = #ptensor.term<tuple(operand(0), tuple(slice(none, none, none), slice(none, none, none), 0), 0.0)>, function = #ptensor.term<made_by("as_function", "Tensor.setitem")>, region = "Tensor.setitem#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    func.return %v1 : tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
  }
  func.func @gather(%x0: tensor<?xf32, #host.layout<4 x @p0 x f32>>, %x1: tensor<?xi64, #host.layout<4 x @p1 x i64>>) -> tensor<?xf32, #host.layout<4 x @p1 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = input("p1"), components = 4>]} {
    %v0 = "host.call"(%x0, %x1) {callee = "gather", named = #ptensor.term<dict("axis", 1)>, region = "gather#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>, tensor<?xi64, #host.layout<4 x @p1 x i64>>) -> tensor<?xf32, #host.layout<4 x @p1 x f32>>
    func.return %v0 : tensor<?xf32, #host.layout<4 x @p1 x f32>>
  }
}
