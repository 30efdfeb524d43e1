builtin.module {
  func.func @find_index(%x0: !ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x i64> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "ptensor.find_index"(%x0) {fop = "argmax", axis = 1 : i64} : (!ptensor.ptensor<4 x @p0 x f32>) -> !ptensor.ptensor<4 x i64>
    func.return %v0 : !ptensor.ptensor<4 x i64>
  }
  func.func @nonzero(%x0: !ptensor.ptensor<3 x 4 x f32>) -> (!ptensor.ptensor<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>, !ptensor.ptensor<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>) {
    %v0, %v1 = "ptensor.nonzero"(%x0) : (!ptensor.ptensor<3 x 4 x f32>) -> (!ptensor.ptensor<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>, !ptensor.ptensor<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>)
    func.return %v0, %v1 : !ptensor.ptensor<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>, !ptensor.ptensor<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>
  }
  func.func @where(%x0: !ptensor.ptensor<4 x @p0 x i1>, %x1: !ptensor.ptensor<4 x @p1 x f32>, %x2: !ptensor.ptensor<4 x @p1 x f32>) -> !ptensor.ptensor<4 x @p0 x f32> attributes {ptensor.guards = [#ptensor.term<equal(@p0, @p1)>], ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = input("p1"), components = 4>]} {
    %v0 = "ptensor.where"(%x0, %x1, %x2) : (!ptensor.ptensor<4 x @p0 x i1>, !ptensor.ptensor<4 x @p1 x f32>, !ptensor.ptensor<4 x @p1 x f32>) -> !ptensor.ptensor<4 x @p0 x f32>
    func.return %v0 : !ptensor.ptensor<4 x @p0 x f32>
  }
}
