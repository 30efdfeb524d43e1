builtin.module {
  func.func @concat(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = concat(call("concat", tuple("arrays", tuple(tuple(tuple(4, ragged(@p0, 0)), tuple(2), tuple(0, 1, 2), none), tuple(tuple(4, ragged(@p0, 0)), tuple(2), tuple(0, 1, 2), none))), tuple("axis", tuple(class("builtins:int"), 1))), "#1"), components = 4, capacity = 2 * values(@p0)>]} {
    %v0 = "host.fused"(%x0, %x1) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1, %x1_1) {callee = "concat", arguments = #ptensor.term<tuple([operand(0), operand(1)])>, named = #ptensor.term<dict("axis", 1)>, region = "concat#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>>
      "host.yield"(%v0_1) : (tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>>
    func.return %v0 : tensor<?x2xf32, #host.layout<4 x @p1 x 2 x f32>>
  }
  func.func @stack(%x0: tensor<3x4xf32>, %x1: tensor<3x4xf32>) -> tensor<2x3x4xf32> {
    %v0 = "host.call"(%x0, %x1) {callee = "stack", arguments = #ptensor.term<tuple([operand(0), operand(1)])>, named = #ptensor.term<dict("axis", 0)>, region = "stack#1"} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<2x3x4xf32>
    func.return %v0 : tensor<2x3x4xf32>
  }
  func.func @expand_dims(%x0: tensor<3x4xf32>) -> tensor<3x1x4xf32> {
    %v0 = "host.call"(%x0) {callee = "expand_dims", named = #ptensor.term<dict("axis", 1)>, region = "expand_dims#1"} : (tensor<3x4xf32>) -> tensor<3x1x4xf32>
    func.return %v0 : tensor<3x1x4xf32>
  }
  func.func @flip(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.call"(%x0) {callee = "flip", named = #ptensor.term<dict("axis", 1)>, region = "flip#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    func.return %v0 : tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
  }
  func.func @permute_dims(%x0: tensor<3x4xf32>) -> tensor<4x3xf32> {
    %v0 = "host.call"(%x0) {callee = "permute_dims", arguments = #ptensor.term<tuple(operand(0), tuple(1, 0))>, region = "permute_dims#1"} : (tensor<3x4xf32>) -> tensor<4x3xf32>
    func.return %v0 : tensor<4x3xf32>
  }
  func.func @reshape(%x0: tensor<3x4xf32>) -> tensor<2x6xf32> {
    %v0 = "host.call"(%x0) {callee = "reshape", arguments = #ptensor.term<tuple(operand(0), tuple(2, 6))>, region = "reshape#1"} : (tensor<3x4xf32>) -> tensor<2x6xf32>
    func.return %v0 : tensor<2x6xf32>
  }
  func.func @roll(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.call"(%x0) {callee = "roll", arguments = #ptensor.term<tuple(operand(0), 1)>, named = #ptensor.term<dict("axis", 1)>, region = "roll#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    func.return %v0 : tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
  }
  func.func @squeeze(%x0: tensor<3x4xf32>) -> tensor<3xf32> {
    %v1 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<3x4xf32>):
      %v0 = "host.call"(%x0_1) {callee = "sum", named = #ptensor.term<dict("axis", 1, "keepdims", true)>, region = "sum#1"} : (tensor<3x4xf32>) -> tensor<3x1xf32>
      %v1_1 = "host.call"(%v0) {callee = "squeeze", named = #ptensor.term<dict("axis", 1)>, region = "squeeze#1"} : (tensor<3x1xf32>) -> tensor<3xf32>
      "host.yield"(%v1_1) : (tensor<3xf32>) -> ()
    }) : (tensor<3x4xf32>) -> tensor<3xf32>
    func.return %v1 : tensor<3xf32>
  }
}
