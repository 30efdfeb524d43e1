// RUN: serrate-opt %s --pass region-to-runtime --verify-each | filecheck %s
// A region becomes a switch to a stream of its device, and back.
func.func @main(%x: tensor<4xf32>, %x_device: !host.device<"meta">) -> tensor<4xf32> {
  %a = "region.device_region"() ({
    %0 = "host.call"(%x) {callee = "exp"} : (tensor<4xf32>) -> tensor<4xf32>
    "region.yield"(%0) : (tensor<4xf32>) -> ()
  }) {device = "meta"} : () -> tensor<4xf32>
  func.return %a : tensor<4xf32>
}
// CHECK:      %[[STREAM:.*]] = "host.start"() {device = "meta"} : () -> !host.stream
// CHECK-NEXT: %[[A:.*]] = "host.call"(%x) {callee = "exp"} : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: "host.wait"(%[[STREAM]]) : (!host.stream) -> ()
// CHECK-NEXT: func.return %[[A]] : tensor<4xf32>
