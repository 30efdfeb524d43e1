// RUN: serrate-opt %s --verify-each | filecheck %s
// The proposal's example of a region, in its short form, is printed in the form that MLIR's own tools read.
func.func @main(%pt1: tensor<4xf32>, %pt2: tensor<4xf32>) {
  region.device_region("level_zero:gpu:1") {
    %sum = "host.call"(%pt1, %pt2) {callee = "add"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  }
  func.return
}
// CHECK:      "region.device_region"() ({
// CHECK-NEXT:   %sum = "host.call"(%pt1, %pt2) {callee = "add"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: }) {device = "level_zero:gpu:1"} : () -> ()
