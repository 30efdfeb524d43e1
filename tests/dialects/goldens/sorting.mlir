builtin.module {
  func.func @sort(%x0: !ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x @p0 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.sort"(%x0) {axis = 1 : i64, descending = true} : (!ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x @p0 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x f32>
  }
  func.func @argsort(%x0: !ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x @p0 x i64> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.argsort"(%x0) {axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x @p0 x i64>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x i64>
  }
}
