builtin.module {
  func.func @extract_slice(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p1 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = at_most(@p0, 2), components = 4>]} {
    %v0 = "ptensor.extract_slice"(%x0) {slice = #ptensor.term<tuple(slice(none, none, none), slice(none, 2, none))>} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p1 x 2 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p1 x 2 x f32>
  }
  func.func @extract_slice_by_numbers(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>, %x1: !ptensor.ptensor<2 x i64>) -> !ptensor.ptensor<2 x @p1 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = made(call("Tensor.getitem", tuple("x", tuple(tuple(4, ragged(@p0, 0)), tuple(2), tuple(0, 1, 2), none)), tuple("key", tuple(tuple(), tuple(2), tuple(0), "x1"))), "#1"), kind = "Tensor.getitem", components = 2>]} {
    %v0 = "ptensor.extract_slice"(%x0, %x1) {slice = #ptensor.term<operand(1)>} : (!ptensor.ptensor<4 x @p0 x 2 x f32>, !ptensor.ptensor<2 x i64>) -> !ptensor.ptensor<2 x @p1 x 2 x f32>
    func.return %v0 : !ptensor.ptensor<2 x @p1 x 2 x f32>
  }
  func.func @insert_slice(%x0: !ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.elementwise_binary_op"(%x0) {ebop = "multiply", rhs = 1 : i64} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    %v1 = "ptensor.call"(%v0) {callee = "Tensor.setitem", arguments = #ptensor.term<tuple(operand(0), tuple(slice(none, none, none), slice(none, none, none), 0), 0.0)>, function = #ptensor.term<made_by("as_function", "Tensor.setitem")>} : (!ptensor.ptensor<4 x @p0 x 2 x f32>) -> !ptensor.ptensor<4 x @p0 x 2 x f32>
    func.return %v1 : !ptensor.ptensor<4 x @p0 x 2 x f32>
  }
  func.func @gather(%x0: !ptensor.ptensor<4 x @p0 x f32>, %x1: !ptensor.ptensor<4 x @p1 x i64>) -> !ptensor.ptensor<4 x @p1 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = input("p1"), components = 4>]} {
    %v0 = "ptensor.gather"(%x0, %x1) {axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x f32>, !ptensor.ptensor<4 x @p1 x i64>) -> !ptensor.ptensor<4 x @p1 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p1 x f32>
  }
}
