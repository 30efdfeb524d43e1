// RUN: serrate-opt %s --pass coalesce-regions --verify-each | filecheck %s
// Regions of one device, one behind the other, become one, which gives what is read outside of it. Another device, or
// an operation in between, ends it.
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = "region.device_region"() ({
    %0 = "host.call"(%x) {callee = "exp"} : (tensor<4xf32>) -> tensor<4xf32>
    "region.yield"(%0) : (tensor<4xf32>) -> ()
  }) {device = "level_zero:gpu:1"} : () -> tensor<4xf32>
  %b = "region.device_region"() ({
    %1 = "host.call"(%a) {callee = "log"} : (tensor<4xf32>) -> tensor<4xf32>
    "region.yield"(%1) : (tensor<4xf32>) -> ()
  }) {device = "level_zero:gpu:1"} : () -> tensor<4xf32>
  %c = "region.device_region"() ({
    %2 = "host.call"(%b) {callee = "sin"} : (tensor<4xf32>) -> tensor<4xf32>
    "region.yield"(%2) : (tensor<4xf32>) -> ()
  }) {device = "cuda:0"} : () -> tensor<4xf32>
  func.return %b, %c : tensor<4xf32>, tensor<4xf32>
}
// CHECK:      %b = "region.device_region"() ({
// CHECK-NEXT:   %[[A:.*]] = "host.call"(%x) {callee = "exp"}
// CHECK-NEXT:   %[[B:.*]] = "host.call"(%[[A]]) {callee = "log"}
// CHECK-NEXT:   "region.yield"(%[[B]]) : (tensor<4xf32>) -> ()
// CHECK-NEXT: }) {device = "level_zero:gpu:1"} : () -> tensor<4xf32>
// CHECK-NEXT: %c = "region.device_region"() ({
// CHECK-NEXT:   "host.call"(%b) {callee = "sin"}
// CHECK:      }) {device = "cuda:0"} : () -> tensor<4xf32>
// CHECK-NEXT: func.return %b, %c
