// RUN: serrate-opt %s --pass explicit-keys --verify-each | filecheck %s
func.func @main(%x: !ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32> {
  %y = "ptensor.call"(%x) {callee = "dropout", named = #ptensor.term<dict("p", 0.5)>} : (!ptensor.ptensor<4 x f32>) -> !ptensor.ptensor<4 x f32>
  func.return %y : !ptensor.ptensor<4 x f32>
}
// CHECK:      %[[SEED:.*]], %[[CALL:.*]] = "ptensor.call"() {callee = "draw a key", {{.*}} : () -> (!ptensor.ptensor<i64>, !ptensor.ptensor<i64>)
// CHECK-NEXT: %y = "ptensor.call"(%x, %[[SEED]], %[[CALL]]) {callee = "dropout", {{.*}}"p", 0.5, "key",
