// RUN: serrate-opt %s --pass lower-ptensor --pass coalesce-regions --pass dist-to-runtime --verify-each | filecheck %s
// RUN: not serrate-opt %s --pass lower-ptensor --pass dead-code | filecheck %s --check-prefix=LATE
// What gives its argument is lowered, too, though nothing stands in it.
func.func @main(%x: !ptensor.ptensor<3 x f32>) -> (!ptensor.ptensor<3 x f32>, !ptensor.ptensor<3 x f32>) {
  func.return %x, %x : !ptensor.ptensor<3 x f32>, !ptensor.ptensor<3 x f32>
}
// CHECK:      func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
// CHECK-NEXT:   func.return %x, %x : tensor<3xf32>, tensor<3xf32>
// LATE: dead-code runs before lower-ptensor
