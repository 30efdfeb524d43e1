// RUN: serrate-opt %s --pass lower-ptensor | filecheck %s
// The third listing of the proposal: a device, no team. What makes the tensor stands in a region of the device.
func.func @main() -> !ptensor.ptensor<10 x i64, device = "cuda:0"> {
  %res = "ptensor.arange"() {start = 2 : i64, stop = 32 : i64, step = 3 : i64, device = #ptensor.term<device("cuda:0")>} : () -> !ptensor.ptensor<10 x i64, device = "cuda:0">
  func.return %res : !ptensor.ptensor<10 x i64, device = "cuda:0">
}
// CHECK:      func.func @main() -> (tensor<10xi64>, !host.device<"cuda:0">) {
// CHECK-NEXT:   %[[DEVICE:.*]] = "host.constant"() : () -> !host.device<"cuda:0">
// CHECK-NEXT:   %res = "region.device_region"() ({
// CHECK-NEXT:     %res_1 = "host.fused"() ({
// CHECK-NEXT:       %res_2 = "host.call"() {callee = "arange", arguments = #ptensor.term<tuple(2)>
// CHECK-NEXT:       "host.yield"(%res_2) : (tensor<10xi64>) -> ()
// CHECK-NEXT:     }) : () -> tensor<10xi64>
// CHECK-NEXT:     "region.yield"(%res_1) : (tensor<10xi64>) -> ()
// CHECK-NEXT:   }) {device = "cuda:0"} : () -> tensor<10xi64>
// CHECK-NEXT:   func.return %res, %[[DEVICE]] : tensor<10xi64>, !host.device<"cuda:0">
