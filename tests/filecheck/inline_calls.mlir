// RUN: serrate-opt %s --pass inline-calls --verify-each | filecheck %s
func.func @twice(%a: !ptensor.ptensor<n0 x f32>) -> !ptensor.ptensor<n0 x f32> {
  %b = "ptensor.elementwise_binary_op"(%a) {ebop = "multiply", rhs = 2 : i64} : (!ptensor.ptensor<n0 x f32>) -> !ptensor.ptensor<n0 x f32>
  func.return %b : !ptensor.ptensor<n0 x f32>
}
func.func @main(%x: !ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32> {
  %y = func.call @twice(%x) : (!ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
  func.return %y : !ptensor.ptensor<4 x f32>
}
// CHECK-NOT:  @twice
// CHECK:      func.func @main(%x: !ptensor.ptensor<4 x f32>)
// CHECK-NEXT:   %[[Y:.*]] = "ptensor.elementwise_binary_op"(%x) {ebop = "multiply", rhs = 2 : i64} : (!ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
// CHECK-NEXT:   func.return %[[Y]]
