builtin.module {
  func.func @concat(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>, %x1: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p1 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = concat(call("concat", tuple("arrays", tuple(tuple(tuple(4, ragged(@p0, 0)), tuple(2), tuple(0, 1, 2), none), tuple(tuple(4, ragged(@p0, 0)), tuple(2), tuple(0, 1, 2), none))), tuple("axis", tuple(class("builtins:int"), 1))), "#1"), components = 4, capacity = 2 * values(@p0)>]} {
    %v0 = "ptensor.combine"(%x0, %x1) {cop = "concat", tensors = #ptensor.term<[operand(0), operand(1)]>, axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p1 x 2 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p1 x 2 x f32>
  }
  func.func @stack(%x0: !ptensor.ptensor<3 x 4 x f32>, %x1: !ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<2 x 3 x 4 x f32> {
    %v0 = "ptensor.combine"(%x0, %x1) {cop = "stack", tensors = #ptensor.term<[operand(0), operand(1)]>, axis = 0 : i64} : (!ptensor.ptensor<3 x 4 x f32>, !ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<2 x 3 x 4 x f32>
    func.return %v0 : !ptensor.ptensor<2 x 3 x 4 x f32>
  }
  func.func @expand_dims(%x0: !ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<3 x 1 x 4 x f32> {
    %v0 = "ptensor.expand_dims"(%x0) {axis = 1 : i64} : (!ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<3 x 1 x 4 x f32>
    func.return %v0 : !ptensor.ptensor<3 x 1 x 4 x f32>
  }
  func.func @flip(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.flip"(%x0) {axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x 2 x f32>
  }
  func.func @permute_dims(%x0: !ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<4 x 3 x f32> {
    %v0 = "ptensor.permute_dims"(%x0) {axis = #ptensor.term<tuple(1, 0)>, form = ["x", "axes"]} : (!ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<4 x 3 x f32>
    func.return %v0 : !ptensor.ptensor<4 x 3 x f32>
  }
  func.func @reshape(%x0: !ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<2 x 6 x f32> {
    %v0 = "ptensor.reshape"(%x0) {shape = #ptensor.term<tuple(2, 6)>, form = ["x", "shape"]} : (!ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<2 x 6 x f32>
    func.return %v0 : !ptensor.ptensor<2 x 6 x f32>
  }
  func.func @roll(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.roll"(%x0) {shift = 1 : i64, axis = 1 : i64, form = ["x", "shift", "axis="]} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x 2 x f32>
  }
  func.func @squeeze(%x0: !ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<3 x f32> {
    %v0 = "ptensor.reduce"(%x0) {rop = "sum", axis = 1 : i64, keepdims = true} : (!ptensor.ptensor<3 x 4 x f32>) -> !ptensor.ptensor<3 x 1 x f32>
    %v1 = "ptensor.squeeze"(%v0) {axis = 1 : i64} : (!ptensor.ptensor<3 x 1 x f32>) -> !ptensor.ptensor<3 x f32>
    func.return %v1 : !ptensor.ptensor<3 x f32>
  }
}
