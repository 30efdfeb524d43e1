// RUN: serrate-opt %s --pass vjp --verify-each | filecheck %s
func.func @main(%x: !ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32> {
  %y = "ptensor.elementwise_unary_op"(%x) {euop = "exp"} : (!ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
  func.return %y : !ptensor.ptensor<4 x f32>
}
// CHECK:      func.func @main(%x: !ptensor.ptensor<4 x f32>)
// CHECK:      func.func @main_back(
// CHECK:        "ptensor.elementwise_binary_op"({{.*}}) {ebop = "multiply"}
// CHECK-NEXT:   func.return
