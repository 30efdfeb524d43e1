builtin.module {
  func.func @arange() -> tensor<10xi64> {
    %v0 = "host.fused"() ({
      %v0_1 = "host.call"() {callee = "arange", arguments = #ptensor.term<tuple(2, 32, 3)>, region = "arange#1"} : () -> tensor<10xi64>
      "host.yield"(%v0_1) : (tensor<10xi64>) -> ()
    }) : () -> tensor<10xi64>
    func.return %v0 : tensor<10xi64>
  }
  func.func @create() -> (tensor<2x3xf32>, tensor<4xi64>) {
    %v0 = "host.fused"() ({
      %v0_1 = "host.call"() {callee = "full", arguments = #ptensor.term<tuple(tuple(2, 3), 0.0)>, named = #ptensor.term<dict("dtype", none, "device", none)>, region = "zeros#1"} : () -> tensor<2x3xf32>
      "host.yield"(%v0_1) : (tensor<2x3xf32>) -> ()
    }) : () -> tensor<2x3xf32>
    %v1 = "host.fused"() ({
      %v1_1 = "host.call"() {callee = "full", arguments = #ptensor.term<tuple(tuple(4), 7)>, region = "full#1"} : () -> tensor<4xi64>
      "host.yield"(%v1_1) : (tensor<4xi64>) -> ()
    }) : () -> tensor<4xi64>
    func.return %v0, %v1 : tensor<2x3xf32>, tensor<4xi64>
  }
  func.func @create_like(%x0: tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) attributes {host.partitions = [#ptensor.partition<name = @p0, of = input("p0"), components = 4>]} {
    %v0 = "host.fused"() ({
      %v0_1 = "host.call"() {callee = "full", arguments = #ptensor.term<tuple(tuple(4, ragged(@p0, 0), 2), 0)>, named = #ptensor.term<dict("dtype", dtype("float32"), "device", device("cpu"))>, region = "zeros_like#1"} : () -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
      "host.yield"(%v0_1) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> ()
    }) : () -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    %v1 = "host.fused"() ({
      %v1_1 = "host.call"() {callee = "full", arguments = #ptensor.term<tuple(tuple(4, ragged(@p0, 0), 2), 2.0)>, named = #ptensor.term<dict("dtype", dtype("float32"), "device", device("cpu"))>, region = "full_like#1"} : () -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
      "host.yield"(%v1_1) : (tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>) -> ()
    }) : () -> tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
    func.return %v0, %v1 : tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>, tensor<?x2xf32, #host.layout<4 x @p0 x 2 x f32>>
  }
  func.func @eye() -> tensor<3x4xf32> {
    %v0 = "host.fused"() ({
      %v1 = "host.call"() {callee = "arange", arguments = #ptensor.term<tuple(3)>, named = #ptensor.term<dict("device", none)>, region = "eye#1"} : () -> tensor<3xi64>
      %v2 = "host.call"() {callee = "arange", arguments = #ptensor.term<tuple(4)>, named = #ptensor.term<dict("device", none)>, region = "eye#1"} : () -> tensor<4xi64>
      %v3 = "host.call"(%v2) {callee = "expand_dims", named = #ptensor.term<dict("axis", 0)>, region = "eye#1"} : (tensor<4xi64>) -> tensor<1x4xi64>
      %v4 = "host.call"(%v1) {callee = "expand_dims", named = #ptensor.term<dict("axis", 1)>, region = "eye#1"} : (tensor<3xi64>) -> tensor<3x1xi64>
      %v5 = "host.call"(%v3, %v4) {callee = "subtract", region = "eye#1"} : (tensor<1x4xi64>, tensor<3x1xi64>) -> tensor<3x4xi64>
      %v6 = "host.call"(%v5) {callee = "equal", arguments = #ptensor.term<tuple(operand(0), 1)>, region = "eye#1"} : (tensor<3x4xi64>) -> tensor<3x4xi1>
      %v0_1 = "host.call"(%v6) {callee = "astype", arguments = #ptensor.term<tuple(operand(0), dtype("float32"))>, region = "eye#1"} : (tensor<3x4xi1>) -> tensor<3x4xf32>
      "host.yield"(%v0_1) : (tensor<3x4xf32>) -> ()
    }) : () -> tensor<3x4xf32>
    func.return %v0 : tensor<3x4xf32>
  }
  func.func @linspace() -> tensor<5xf32> {
    %v0 = "host.call"() {callee = "linspace", arguments = #ptensor.term<tuple(0.0, 1.0, 5)>, region = "linspace#1"} : () -> tensor<5xf32>
    func.return %v0 : tensor<5xf32>
  }
  func.func @meshgrid(%x0: tensor<2xi64>, %x1: tensor<4xi64>) -> (tensor<4x2xi64>, tensor<4x2xi64>) attributes {host.outputs = #ptensor.term<[operand(0), operand(1)]>} {
    %v0, %v1 = "host.call"(%x0, %x1) {callee = "meshgrid", region = "meshgrid#1", results = #ptensor.term<[operand(0), operand(1)]>} : (tensor<2xi64>, tensor<4xi64>) -> (tensor<4x2xi64>, tensor<4x2xi64>)
    func.return %v0, %v1 : tensor<4x2xi64>, tensor<4x2xi64>
  }
  func.func @extract_triangle(%x0: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>) {
    %v0 = "host.call"(%x0) {callee = "tril", region = "tril#1"} : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %v1 = "host.call"(%x0) {callee = "triu", named = #ptensor.term<dict("k", 1)>, region = "triu#1"} : (tensor<3x4xf32>) -> tensor<3x4xf32>
    func.return %v0, %v1 : tensor<3x4xf32>, tensor<3x4xf32>
  }
}
