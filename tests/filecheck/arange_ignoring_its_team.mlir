// RUN: serrate-opt %s --pass lower-ptensor{ignore-team} | filecheck %s
// The option of the proposal's last paragraph on the pass: teams are ignored.
func.func @main() -> !ptensor.ptensor<10 x i64, team = 7> {
  %res = "ptensor.arange"() {start = 2 : i64, stop = 32 : i64, step = 3 : i64, team = 7 : i64} : () -> !ptensor.ptensor<10 x i64, team = 7>
  func.return %res : !ptensor.ptensor<10 x i64, team = 7>
}
// CHECK:      func.func @main() -> tensor<10xi64> {
// CHECK-NOT:    dist.
// CHECK:        "host.call"() {callee = "arange", arguments = #ptensor.term<tuple(2)>
