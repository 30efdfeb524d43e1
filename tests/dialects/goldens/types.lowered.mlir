builtin.module {
  func.func @cast(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf64, #host.layout<4 x @p0 x 2 x f64>> attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>):
      %v0_1 = "host.call"(%x0_1) {callee = "astype", arguments = #ptensor.term<tuple(operand(0), dtype("float64"))>, region = "astype#1"} : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf64, #host.layout<4 x @p0 x 2 x f64>>
      "host.yield"(%v0_1) : (tensor<?x2xf64, #host.layout<4 x @p0 x 2 x f64>>) -> ()
    }) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> tensor<?x2xf64, #host.layout<4 x @p0 x 2 x f64>>
    func.return %v0 : tensor<?x2xf64, #host.layout<4 x @p0 x 2 x f64>>
  }
  func.func @broadcast(%x0: tensor<3x4xf32>) -> tensor<2x3x4xf32> {
    %v0 = "host.fused"(%x0) ({
    ^bb0(%x0_1: tensor<3x4xf32>):
      %v0_1 = "host.call"(%x0_1) {callee = "broadcast_to", arguments = #ptensor.term<tuple(operand(0), tuple(2, 3, 4))>, region = "broadcast_to#1"} : (tensor<3x4xf32>) -> tensor<2x3x4xf32>
      "host.yield"(%v0_1) : (tensor<2x3x4xf32>) -> ()
    }) : (tensor<3x4xf32>) -> tensor<2x3x4xf32>
    func.return %v0 : tensor<2x3x4xf32>
  }
}
