builtin.module {
  func.func @reduce(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> (tensor<4x2xf32>, tensor<4x2xf32>) attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "sum", named = #ptensor.term<dict("axis", 1)>, region = "sum#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<4x2xf32>
      "host.yield"(%v0_1) : (tensor<4x2xf32>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<4x2xf32>
    %v1 = "host.call"(%x0) {callee = "var", named = #ptensor.term<dict("axis", 1, "correction", 1)>, region = "var#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<4x2xf32>
    func.return %v0, %v1 : tensor<4x2xf32>, tensor<4x2xf32>
  }
  func.func @test(%x0: tensor<?xi1, #host.layout<4 x @p0 x i1>>) -> (tensor<4xi1>, tensor<4xi1>) attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0, %v1 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?xi1, #host.layout<4 x @p0 x i1>>):
      %v0_1 = "host.call"(%x0_1) {callee = "any", named = #ptensor.term<dict("axis", 1)>, region = "any#1"} : (tensor<?xi1, #host.layout<4 x @p0 x i1>>) -> tensor<4xi1>
      %v1_1 = "host.call"(%x0_1) {callee = "all", named = #ptensor.term<dict("axis", 1)>, region = "all#1"} : (tensor<?xi1, #host.layout<4 x @p0 x i1>>) -> tensor<4xi1>
      "host.yield"(%v0_1, %v1_1) : (tensor<4xi1>, tensor<4xi1>) -> ()
    }) : (tensor<?xi1, #host.layout<4 x @p0 x i1>>) -> (tensor<4xi1>, tensor<4xi1>)
    func.return %v0, %v1 : tensor<4xi1>, tensor<4xi1>
  }
}
