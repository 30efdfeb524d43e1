// RUN: serrate-opt %s --pass common-subexpressions --pass dead-code --verify-each | filecheck %s
func.func @main(%x: !ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32> {
  %a = "ptensor.elementwise_unary_op"(%x) {euop = "exp"} : (!ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
  %b = "ptensor.elementwise_unary_op"(%x) {euop = "exp"} : (!ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
  %c = "ptensor.elementwise_unary_op"(%x) {euop = "sin"} : (!ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
  %d = "ptensor.elementwise_binary_op"(%a, %b) {ebop = "add"} : (!ptensor.ptensor<4 x f32>, !ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
  func.return %d : !ptensor.ptensor<4 x f32>
}
// CHECK:      %a = "ptensor.elementwise_unary_op"(%x) {euop = "exp"}
// CHECK-NOT:  sin
// CHECK-NEXT: %d = "ptensor.elementwise_binary_op"(%a, %a) {ebop = "add"}
// CHECK-NEXT: func.return %d
