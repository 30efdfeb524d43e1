// RUN: serrate-opt %s --pass explicit-writes --verify-each | filecheck %s
// RUN: serrate-opt %s --pass lower-ptensor --verify-each | filecheck %s --check-prefix=LOWERED
// A write makes a new value; a deletion is left out of programs, and memory is given back behind the last reader.
func.func @main(%x: !ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32> {
  %y = "ptensor.elementwise_unary_op"(%x) {euop = "exp"} : (!ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
  "ptensor.insert_slice"(%y) {slice = 0 : i64, lhs = 1 : i64} : (!ptensor.ptensor<4 x f32>) -> ()
  "ptensor.delete"(%x) : (!ptensor.ptensor<4 x f32>) -> ()
  func.return %y : !ptensor.ptensor<4 x f32>
}
// CHECK:      %y = "ptensor.elementwise_unary_op"(%x) {euop = "exp"}
// CHECK-NEXT: %[[WRITTEN:.*]] = "ptensor.call"(%y) {callee = "Tensor.setitem"
// CHECK-NOT:  delete
// CHECK:      func.return %[[WRITTEN]]
// LOWERED:      = "host.fused"(%x) ({
// LOWERED:      }) : (tensor<4xf32>) -> tensor<4xf32>
// LOWERED-NEXT: "host.free"(%x) : (tensor<4xf32>) -> ()
