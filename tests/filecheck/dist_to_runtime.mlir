// RUN: serrate-opt %s --pass lower-ptensor --pass dist-to-runtime --verify-each | filecheck %s
// A reduction of all elements: each process reduces its part, and the team what they found.
func.func @main(%x: !ptensor.ptensor<10 x f32, team = 7>) -> !ptensor.ptensor<f32, team = 7> {
  %s = "ptensor.reduce"(%x) {rop = "sum"} : (!ptensor.ptensor<10 x f32, team = 7>) -> !ptensor.ptensor<f32, team = 7>
  func.return %s : !ptensor.ptensor<f32, team = 7>
}
// CHECK:      func.func @main(%x: tensor<?xf32>, %x_team: i64, %x_gid: i64) -> (tensor<f32>, i64, i64) attributes {host.held = [#host.layout<10 x f32, team = 7>]} {
// CHECK-NEXT:   %[[TEAM:.*]] = arith.constant 7 : i64
// CHECK-NEXT:   %gid = "host.call"(%[[TEAM]]) {callee = "team.init_dtensor"} : (i64) -> i64
// CHECK-NEXT:   %s = "host.fused"(%x) ({
// CHECK:        "host.call"(%[[TEAM]], %gid, %s) {callee = "team.finalize_reduce", kind = "sum"} : (i64, i64, tensor<f32>) -> ()
// CHECK-NOT:    dist.
// CHECK:        func.return %s, %[[TEAM]], %gid : tensor<f32>, i64, i64
