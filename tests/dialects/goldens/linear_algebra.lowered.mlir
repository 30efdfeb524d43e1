builtin.module {
  func.func @matmul(%x0: tensor<3x4xf32>, %x1: tensor<4x3xf32>) -> tensor<3x3xf32> {
    %v0 = "host.call"(%x0, %x1) {callee = "matmul", region = "matmul#1"} : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
    func.return %v0 : tensor<3x3xf32>
  }
  func.func @matrix_transpose(%x0: tensor<3x4xf32>) -> tensor<4x3xf32> {
    %v0 = "host.call"(%x0) {callee = "permute_dims", arguments = #ptensor.term<tuple(operand(0), tuple(1, 0))>, region = "matrix_transpose#1"} : (tensor<3x4xf32>) -> tensor<4x3xf32>
    func.return %v0 : tensor<4x3xf32>
  }
  func.func @vecdot(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0, %x1) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v1 = "host.call"(%x0_1, %x1_1) {callee = "multiply", region = "vecdot#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
      %v0_1 = "host.call"(%v1) {callee = "sum", named = #ptensor.term<dict("axis", -1, "dtype", dtype("float32"))>, region = "vecdot#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      "host.yield"(%v0_1) : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
    func.return %v0 : tensor<?xf32, #host.layout<4 x @p0 x f32>>
  }
  func.func @tensor_dot(%x0: tensor<3x4xf32>, %x1: tensor<4x3xf32>) -> tensor<3x3xf32> {
    %v0 = "host.call"(%x0, %x1) {callee = "tensordot", named = #ptensor.term<dict("axes", 1)>, region = "tensordot#1"} : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
    func.return %v0 : tensor<3x3xf32>
  }
}
