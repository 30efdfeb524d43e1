// RUN: serrate-opt %s --pass lower-ptensor | filecheck %s
// The fourth listing of the proposal: a device and a team. The host asks the team; the device makes the part.
func.func @main() -> !ptensor.ptensor<10 x i64, device = "cuda:0", team = 7> {
  %res = "ptensor.arange"() {start = 2 : i64, stop = 32 : i64, step = 3 : i64, device = #ptensor.term<device("cuda:0")>, team = 7 : i64} : () -> !ptensor.ptensor<10 x i64, device = "cuda:0", team = 7>
  func.return %res : !ptensor.ptensor<10 x i64, device = "cuda:0", team = 7>
}
// CHECK:      func.func @main() -> (tensor<?xi64>, !host.device<"cuda:0">, i64, i64) {
// CHECK-DAG:    %[[TEAM:.*]] = arith.constant 7 : i64
// CHECK-DAG:    %[[DEVICE:.*]] = "host.constant"() : () -> !host.device<"cuda:0">
// CHECK:        %gid = "dist.init_dtensor"(%[[TEAM]], %{{.*}}) : (i64, index) -> i64
// CHECK-NEXT:   %lshape = "dist.local_shape"(%[[TEAM]], %gid) : (i64, i64) -> index
// CHECK-NEXT:   %lslice, %{{.*}}, %{{.*}} = "dist.local_slice"(%[[TEAM]], %gid)
// CHECK:        %res = "region.device_region"() ({
// CHECK-NEXT:     %res_1 = "host.fused"() ({
// CHECK-NEXT:       %res_2 = "host.call"(%{{.*}}, %{{.*}}) {callee = "arange", arguments = #ptensor.term<tuple(operand(0))>
// CHECK-NEXT:       "host.yield"(%res_2) : (tensor<?xi64>) -> ()
// CHECK-NEXT:     }) : () -> tensor<?xi64>
// CHECK-NEXT:     "region.yield"(%res_1) : (tensor<?xi64>) -> ()
// CHECK-NEXT:   }) {device = "cuda:0"} : () -> tensor<?xi64>
// CHECK-NEXT:   func.return %res, %[[DEVICE]], %[[TEAM]], %gid : tensor<?xi64>, !host.device<"cuda:0">, i64, i64
