builtin.module {
  func.func @find_index(%x0: tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<4xi64> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?xf32, #host.layout<4 x @p0 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "argmax", named = #ptensor.term<dict("axis", 1)>, region = "argmax#1"} : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<4xi64>
      "host.yield"(%v0_1) : (tensor<4xi64>) -> ()
    }) : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> tensor<4xi64>
    func.return %v0 : tensor<4xi64>
  }
  func.func @nonzero(%x0: tensor<3x4xf32>) -> (tensor<?xi64, #host.layout<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>>, tensor<?xi64, #host.layout<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>>) {
    %v0, %v1 = "host.call"(%x0) {callee = "nonzero", region = "nonzero#1"} : (tensor<3x4xf32>) -> (tensor<?xi64, #host.layout<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>>, tensor<?xi64, #host.layout<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>>)
    func.return %v0, %v1 : tensor<?xi64, #host.layout<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>>, tensor<?xi64, #host.layout<count("nonzero", call("nonzero", tuple("x", tuple(tuple(), tuple(3, 4), tuple(0, 1), "x0"))), "#1", "nonzero") x i64>>
  }
  func.func @where(%x0: tensor<?xi1, #host.layout<4 x @p0 x i1>>, %x1: tensor<?xf32, #host.layout<4 x @p1 x f32>>, %x2: tensor<?xf32, #host.layout<4 x @p1 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>> attributes {host.guards = [#ptensor.term<equal(@p0, @p1)>], host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>, #ptensor.partition<name = @p1, of = input("p1"), components = 4>]} {
    %v0 = "host.fused"(%x0, %x1, %x2) ({
    ^bb0(%x0_1: tensor<?xi1, #host.layout<4 x @p0 x i1>>, %x1_1: tensor<?xf32, #host.layout<4 x @p1 x f32>>, %x2_1: tensor<?xf32, #host.layout<4 x @p1 x f32>>):
      %v0_1 = "host.call"(%x0_1, %x1_1, %x2_1) {callee = "where", region = "where#1"} : (tensor<?xi1, #host.layout<4 x @p0 x i1>>, tensor<?xf32, #host.layout<4 x @p1 x f32>>, tensor<?xf32, #host.layout<4 x @p1 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
      "host.yield"(%v0_1) : (tensor<?xf32, #host.layout<4 x @p0 x f32>>) -> ()
    }) : (tensor<?xi1, #host.layout<4 x @p0 x i1>>, tensor<?xf32, #host.layout<4 x @p1 x f32>>, tensor<?xf32, #host.layout<4 x @p1 x f32>>) -> tensor<?xf32, #host.layout<4 x @p0 x f32>>
    func.return %v0 : tensor<?xf32, #host.layout<4 x @p0 x f32>>
  }
}
