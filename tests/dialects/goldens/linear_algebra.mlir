builtin.module {
  func.func @matmul(%x0: !ptensor.ptensor<3 x 4 x f32>, %x1: !ptensor.ptensor<4 x 3 x f32>) -> !ptensor.ptensor<3 x 3 x f32> {
    %v0 = "ptensor.matmul"(%x0, %x1) : (!ptensor.ptensor<3 x 4 x f32>, !ptensor.ptensor<4 x 3 x f32>) -> !ptensor.ptensor<3 x 3 x f32>
    func.return %v0 : !ptensor.ptensor<3 x 3 x f32>
  }
  func.func @matrix_transpose(%x0: !ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<4 x 3 x f32> {
    %v0 = "ptensor.matrix_transpose"(%x0) : (!ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<4 x 3 x f32>
    func.return %v0 : !ptensor.ptensor<4 x 3 x f32>
  }
  func.func @vecdot(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>, %x1: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.vecdot"(%x0, %x1) {axis = -1 : i64} : (!ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x f32>
  }
  func.func @tensor_dot(%x0: !ptensor.ptensor<3 x 4 x f32>, %x1: !ptensor.ptensor<4 x 3 x f32>) -> !ptensor.ptensor<3 x 3 x f32> {
    %v0 = "ptensor.tensor_dot"(%x0, %x1) {axis = 1 : i64} : (!ptensor.ptensor<3 x 4 x f32>, !ptensor.ptensor<4 x 3 x f32>) -> !ptensor.ptensor<3 x 3 x f32>
    func.return %v0 : !ptensor.ptensor<3 x 3 x f32>
  }
}
