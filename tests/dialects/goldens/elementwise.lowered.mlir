builtin.module {
  func.func @elementwise_unary_op(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "exp", region = "exp#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
      "host.yield"(%v0_1) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    func.return %v0 : tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
  }
  func.func @elementwise_unary_test(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "isnan", region = "isnan#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>>
      "host.yield"(%v0_1) : (tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>>
    func.return %v0 : tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>>
  }
  func.func @elementwise_binary_op(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v1 = "host.fused"(%x1, %x0) ({
    ^bb0(%x1_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0 = "host.call"(%x1_1) {callee = "multiply", arguments = #ptensor.term<tuple(operand(0), 2)>, region = "multiply#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
      %v1_1 = "host.call"(%x0_1, %v0) {callee = "add", region = "add#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
      "host.yield"(%v1_1) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    func.return %v1 : tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
  }
  func.func @elementwise_binary_test(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0, %x1) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, %x1_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1, %x1_1) {callee = "greater", region = "greater#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>>
      "host.yield"(%v0_1) : (tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>>
    func.return %v0 : tensor<?x2xi1, #host.layout<4 x @p0 x 2 x i1>>
  }
}
