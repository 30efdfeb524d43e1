builtin.module {
  func.func @arange() -> !ptensor.ptensor<10 x i64> {
    %v0 = "ptensor.arange"() {start = 2 : i64, stop = 32 : i64, step = 3 : i64, form = ["start", "stop", "step"]} : () -> !ptensor.ptensor<10 x i64>
    func.return %v0 : !ptensor.ptensor<10 x i64>
  }
  func.func @create() -> (!ptensor.ptensor<2 x 3 x f32>, !ptensor.ptensor<4 x i64>) {
    %v0 = "ptensor.create"() {kind = "zeros", shape = #ptensor.term<tuple(2, 3)>, form = ["shape"]} : () -> !ptensor.ptensor<2 x 3 x f32>
    %v1 = "ptensor.create"() {kind = "full", shape = #ptensor.term<tuple(4)>, value = 7 : i64, form = ["shape", "fill_value"]} : () -> !ptensor.ptensor<4 x i64>
    func.return %v0, %v1 : !ptensor.ptensor<2 x 3 x f32>, !ptensor.ptensor<4 x i64>
  }
  func.func @create_like(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> (!ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>) attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.create_like"(%x0) {kind = "zeros_like"} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    %v1 = "ptensor.create_like"(%x0) {kind = "full_like", value = #ptensor.term<2.0>} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    func.return %v0, %v1 : !ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>
  }
  func.func @eye() -> !ptensor.ptensor<3 x 4 x f32> {
    %v0 = "ptensor.eye"() {n_rows = 3 : i64, n_cols = 4 : i64, k = 1 : i64} : () -> !ptensor.ptensor<3 x 4 x f32>
    func.return %v0 : !ptensor.ptensor<3 x 4 x f32>
  }
  func.func @linspace() -> !ptensor.ptensor<5 x f32> {
    %v0 = "ptensor.linspace"() {start = #ptensor.term<0.0>, stop = #ptensor.term<1.0>, n = 5 : i64, form = ["start", "stop", "num"]} : () -> !ptensor.ptensor<5 x f32>
    func.return %v0 : !ptensor.ptensor<5 x f32>
  }
  func.func @meshgrid(%x0: !ptensor.ptensor<2 x i64>, %x1: !ptensor.ptensor<4 x i64>) -> (!ptensor.ptensor<4 x 2 x i64>, !ptensor.ptensor<4 x 2 x i64>) attributes {ptensor.outputs = #ptensor.term<[operand(0), operand(1)]>} {
    %v0, %v1 = "ptensor.meshgrid"(%x0, %x1) {results = #ptensor.term<[operand(0), operand(1)]>} : (!ptensor.ptensor<2 x i64>, !ptensor.ptensor<4 x i64>) -> (!ptensor.ptensor<4 x 2 x i64>, !ptensor.ptensor<4 x 2 x i64>)
    func.return %v0, %v1 : !ptensor.ptensor<4 x 2 x i64>, !ptensor.ptensor<4 x 2 x i64>
  }
  func.func @extract_triangle(%x0: !ptensor.ptensor<3 x 4 x f32>) -> (!ptensor.ptensor<3 x 4 x f32>, !ptensor.ptensor<3 x 4 x f32>) {
    %v0 = "ptensor.extract_triangle"(%x0) {side = "lower"} : (!ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<3 x 4 x f32>
    %v1 = "ptensor.extract_triangle"(%x0) {side = "upper", k = 1 : i64} : (!ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<3 x 4 x f32>
    func.return %v0, %v1 : !ptensor.ptensor<3 x 4 x f32>, !ptensor.ptensor<3 x 4 x f32>
  }
}
