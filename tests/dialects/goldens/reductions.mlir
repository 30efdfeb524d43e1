builtin.module {
  func.func @reduce(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> (!ptensor.ptensor<4 x 2 x f32>, !ptensor.ptensor<4 x 2 x f32>) attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.reduce"(%x0) {rop = "sum", axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x 2 x f32>
    %v1 = "ptensor.reduce"(%x0) {rop = "var", axis = 1 : i64, correction = 1 : i64} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x 2 x f32>
    func.return %v0, %v1 : !ptensor.ptensor<4 x 2 x f32>, !ptensor.ptensor<4 x 2 x f32>
  }
  func.func @test(%x0: !ptensor.ptensor<4 x @p0 x i1>) -> (!ptensor.ptensor<4 x i1>, !ptensor.ptensor<4 x i1>) attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.test"(%x0) {top = "any", axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x i1>) -> !ptensor.ptensor<4 x i1>
    %v1 = "ptensor.test"(%x0) {top = "all", axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x i1>) -> !ptensor.ptensor<4 x i1>
    func.return %v0, %v1 : !ptensor.ptensor<4 x i1>, !ptensor.ptensor<4 x i1>
  }
}
