// RUN: serrate-opt %s --pass lower-ptensor | filecheck %s
// The first listing of the proposal: no device, no team. Memory for the result is host.fused's own.
func.func @main() -> !ptensor.ptensor<10 x i64> {
  %res = "ptensor.arange"() {start = 2 : i64, stop = 32 : i64, step = 3 : i64} : () -> !ptensor.ptensor<10 x i64>
  func.return %res : !ptensor.ptensor<10 x i64>
}
// CHECK:      func.func @main() -> tensor<10xi64> {
// CHECK-NEXT:   %res = "host.fused"() ({
// CHECK-NEXT:     %res_1 = "host.call"() {callee = "arange", arguments = #ptensor.term<tuple(2)>, named = #ptensor.term<dict("stop", 32, "step", 3)>
// CHECK-NEXT:     "host.yield"(%res_1) : (tensor<10xi64>) -> ()
// CHECK-NEXT:   }) : () -> tensor<10xi64>
// CHECK-NEXT:   func.return %res : tensor<10xi64>
