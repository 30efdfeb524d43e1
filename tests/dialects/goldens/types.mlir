builtin.module {
  func.func @cast(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f64> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.cast"(%x0) {dtype = #ptensor.term<dtype("float64")>} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f64>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x 2 x f64>
  }
  func.func @broadcast(%x0: !ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<2 x 3 x 4 x f32> {
    %v0 = "ptensor.broadcast"(%x0) {shape = #ptensor.term<tuple(2, 3, 4)>, form = ["x", "shape"]} : (!ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<2 x 3 x 4 x f32>
    func.return %v0 : !ptensor.ptensor<2 x 3 x 4 x f32>
  }
}
