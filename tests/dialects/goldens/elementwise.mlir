builtin.module {
  func.func @elementwise_unary_op(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.elementwise_unary_op"(%x0) {euop = "exp"} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x 2 x f32>
  }
  func.func @elementwise_unary_test(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x i1> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.elementwise_unary_test"(%x0) {euop = "isnan"} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x i1>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x 2 x i1>
  }
  func.func @elementwise_binary_op(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>, %x1: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.elementwise_binary_op"(%x1) {ebop = "multiply", rhs = 2 : i64} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    %v1 = "ptensor.elementwise_binary_op"(%x0, %v0) {ebop = "add"} : (!ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    func.return %v1 : !ptensor.ptensor<4 x @p0 x 2 x f32>
  }
  func.func @elementwise_binary_test(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>, %x1: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x i1> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.elementwise_binary_test"(%x0, %x1) {ebop = "greater"} : (!ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x i1>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x 2 x i1>
  }
}
