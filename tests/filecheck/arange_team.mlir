// RUN: serrate-opt %s --pass lower-ptensor | filecheck %s
// The second listing of the proposal: no device, a team. Each process makes its part: %lshape elements from %lslice on.
func.func @main() -> !ptensor.ptensor<10 x i64, team = 7> {
  %res = "ptensor.arange"() {start = 2 : i64, stop = 32 : i64, step = 3 : i64, team = 7 : i64} : () -> !ptensor.ptensor<10 x i64, team = 7>
  func.return %res : !ptensor.ptensor<10 x i64, team = 7>
}
// CHECK:      func.func @main() -> (tensor<?xi64>, i64, i64) {
// CHECK-DAG:    %[[SHAPE:.*]] = arith.constant 10 : index
// CHECK-DAG:    %[[TEAM:.*]] = arith.constant 7 : i64
// CHECK-DAG:    %[[START:.*]] = arith.constant 2 : index
// CHECK-DAG:    %[[STEP:.*]] = arith.constant 3 : index
// CHECK:        %gid = "dist.init_dtensor"(%[[TEAM]], %[[SHAPE]]) : (i64, index) -> i64
// CHECK-NEXT:   %lshape = "dist.local_shape"(%[[TEAM]], %gid) : (i64, i64) -> index
// CHECK-NEXT:   %lslice, %{{.*}}, %{{.*}} = "dist.local_slice"(%[[TEAM]], %gid) : (i64, i64) -> (index, index, index)
// CHECK-NEXT:   %[[SKIPPED:.*]] = arith.muli %lslice, %[[STEP]] : index
// CHECK-NEXT:   %[[FIRST:.*]] = arith.addi %[[START]], %[[SKIPPED]] : index
// CHECK-NEXT:   %[[LENGTH:.*]] = arith.muli %lshape, %[[STEP]] : index
// CHECK-NEXT:   %[[END:.*]] = arith.addi %[[FIRST]], %[[LENGTH]] : index
// CHECK-NEXT:   %res = "host.fused"() ({
// CHECK-NEXT:     %res_1 = "host.call"(%[[FIRST]], %[[END]]) {callee = "arange", arguments = #ptensor.term<tuple(operand(0))>, named = #ptensor.term<dict("stop", operand(1), "step", 3)>
// CHECK-NEXT:     "host.yield"(%res_1) : (tensor<?xi64>) -> ()
// CHECK-NEXT:   }) : () -> tensor<?xi64>
// CHECK-NEXT:   func.return %res, %[[TEAM]], %gid : tensor<?xi64>, i64, i64
