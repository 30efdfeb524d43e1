// RUN: serrate-opt %s --pass coalesce-regions --pass region-to-runtime --verify-each | filecheck %s
// A region may give what an earlier one gave; what only yields read is not given.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = "region.device_region"() ({
    %0 = "host.call"(%x) {callee = "exp"} : (tensor<4xf32>) -> tensor<4xf32>
    "region.yield"(%0) : (tensor<4xf32>) -> ()
  }) {device = "cpu"} : () -> tensor<4xf32>
  %b = "region.device_region"() ({
    "region.yield"(%a) : (tensor<4xf32>) -> ()
  }) {device = "cpu"} : () -> tensor<4xf32>
  %c = "region.device_region"() ({
    "region.yield"(%b) : (tensor<4xf32>) -> ()
  }) {device = "cpu"} : () -> tensor<4xf32>
  func.return %c : tensor<4xf32>
}
// CHECK:      %[[S:.*]] = "host.start"() {device = "cpu"}
// CHECK-NEXT: %[[A:.*]] = "host.call"(%x) {callee = "exp"}
// CHECK-NEXT: "host.wait"(%[[S]])
// CHECK-NEXT: func.return %[[A]]
