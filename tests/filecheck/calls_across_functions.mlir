// RUN: serrate-opt %s --pass lower-ptensor --verify-each | filecheck %s
// Each tensor that crosses a call is a tensor, its device, its team and its number in the team.
func.func @twice(%a: !ptensor.ptensor<10 x f32, device = "cuda:0", team = 7>) -> !ptensor.ptensor<10 x f32, device = "cuda:0", team = 7> {
  %b = "ptensor.elementwise_binary_op"(%a) {ebop = "multiply", rhs = 2 : i64} : (!ptensor.ptensor<10 x f32, device = "cuda:0", team = 7>) -> !ptensor.ptensor<10 x f32, device = "cuda:0", team = 7>
  func.return %b : !ptensor.ptensor<10 x f32, device = "cuda:0", team = 7>
}
func.func @main(%x: !ptensor.ptensor<10 x f32, device = "cuda:0", team = 7>) -> !ptensor.ptensor<10 x f32, device = "cuda:0", team = 7> {
  %y = func.call @twice(%x) : (!ptensor.ptensor<10 x f32, device = "cuda:0", team = 7>) -> !ptensor.ptensor<10 x f32, device = "cuda:0", team = 7>
  func.return %y : !ptensor.ptensor<10 x f32, device = "cuda:0", team = 7>
}
// CHECK:      func.func @twice(%a: tensor<?xf32>, %a_device: !host.device<"cuda:0">, %a_team: i64, %a_gid: i64) -> (tensor<?xf32>, !host.device<"cuda:0">, i64, i64) attributes {host.held = [#host.layout<10 x f32, device = "cuda:0", team = 7>]} {
// CHECK:        %gid = "dist.init_dtensor"
// CHECK:        "region.device_region"() ({
// CHECK:        }) {device = "cuda:0"} : () -> tensor<?xf32>
// CHECK:      func.func @main(%x: tensor<?xf32>, %x_device: !host.device<"cuda:0">, %x_team: i64, %x_gid: i64) -> (tensor<?xf32>, !host.device<"cuda:0">, i64, i64) attributes {host.held = [#host.layout<10 x f32, device = "cuda:0", team = 7>]} {
// CHECK-NEXT:   %y, %y_device, %y_team, %y_gid = func.call @twice(%x, %x_device, %x_team, %x_gid) : (tensor<?xf32>, !host.device<"cuda:0">, i64, i64) -> (tensor<?xf32>, !host.device<"cuda:0">, i64, i64)
// CHECK-NEXT:   func.return %y, %y_device, %y_team, %y_gid
