// RUN: serrate-opt %s --pass lower-ptensor --verify-each | filecheck %s
// Functions stay apart; each has names of its own for sizes and rows.
func.func @total(%a: !ptensor.ptensor<n0 x @p0 x f32>) -> !ptensor.ptensor<n0 x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = n0>]} {
  %b = "ptensor.reduce"(%a) {rop = "sum", axis = 1 : i64} : (!ptensor.ptensor<n0 x @p0 x f32>) -> !ptensor.ptensor<n0 x f32>
  func.return %b : !ptensor.ptensor<n0 x f32>
}
func.func @main(%x: !ptensor.ptensor<m x @q x f32>) -> !ptensor.ptensor<m x f32> attributes {ptensor.partitions = [#ptensor.partition<name = @q, of = input("q"), components = m>]} {
  %y = func.call @total(%x) : (!ptensor.ptensor<m x @q x f32>) -> !ptensor.ptensor<m x f32>
  func.return %y : !ptensor.ptensor<m x f32>
}
// CHECK: func.func @total(%a: tensor<?xf32, #host.layout<n0 x @p0 x f32>>) -> tensor<?xf32, #host.layout<n0 x f32>>
// CHECK: func.func @main(%x: tensor<?xf32, #host.layout<m x @{{.*}} x f32>>) -> tensor<?xf32, #host.layout<m x f32>>
// CHECK:   %y = func.call @total(%x) : (tensor<?xf32, #host.layout<m x @{{.*}} x f32>>) -> tensor<?xf32, #host.layout<m x f32>>
