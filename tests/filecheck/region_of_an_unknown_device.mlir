// RUN: not serrate-opt %s --pass region-to-runtime | filecheck %s
// The proposal's example of a region. Only this pass looks at the name of a device.
func.func @main(%pt1: tensor<4xf32>, %pt2: tensor<4xf32>) {
  region.device_region("level_zero:gpu:1") {
    %sum = "host.call"(%pt1, %pt2) {callee = "add"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  }
  func.return
}
// CHECK: region_of_an_unknown_device.mlir:4:3: this machine has no device level_zero:gpu:1
