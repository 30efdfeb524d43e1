// RUN: serrate-opt %s --pass lower-ptensor --verify-each | filecheck %s
// Elements of a slice go to the processes that hold them in the result.
func.func @main(%x: !ptensor.ptensor<10 x f32, team = 7>) -> !ptensor.ptensor<4 x f32, team = 7> {
  %s = "ptensor.extract_slice"(%x) {slice = #ptensor.term<slice(1, 9, 2)>} : (!ptensor.ptensor<10 x f32, team = 7>) -> !ptensor.ptensor<4 x f32, team = 7>
  func.return %s : !ptensor.ptensor<4 x f32, team = 7>
}
// CHECK:      %view = "dist.init_view"(%x_team, %x_gid, %{{.*}}, %{{.*}}, %{{.*}}) : (i64, i64, index, index, index) -> i64
// CHECK-NEXT: %gid = "dist.init_dtensor"(%[[TEAM:.*]], %{{.*}}) : (i64, index) -> i64
// CHECK-NEXT: %lshape = "dist.local_shape"(%x_team, %gid) : (i64, i64) -> index
// CHECK-NEXT: %s = "host.alloc"(%lshape) : (index) -> tensor<?xf32>
// CHECK-NEXT: "dist.copy"(%x_team, %view, %gid, %x, %s) : (i64, i64, i64, tensor<?xf32>, tensor<?xf32>) -> ()
// CHECK-NEXT: "dist.fini_dtensor"(%x_team, %view) : (i64, i64) -> ()
// CHECK-NEXT: func.return %s, %[[TEAM]], %gid
