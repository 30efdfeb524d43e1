builtin.module {
  func.func @sort(%x0: tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.call"(%x0) {callee = "sort", named = #ptensor.term<dict("axis", 1, "descending", true)>, region = "sort#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
    func.return %v0 : tensor<?xf32, #host.layout<4 x @p0 x f32>>
  }
  func.func @argsort(%x0: tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xi64, #host.layout<4 x @p0 x i64>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.call"(%x0) {callee = "argsort", named = #ptensor.term<dict("axis", 1)>, region = "argsort#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<?xi64, #host.layout<4 x @p0 x i64>>
    func.return %v0 : tensor<?xi64, #host.layout<4 x @p0 x i64>>
  }
}
