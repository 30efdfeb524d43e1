// RUN: not serrate-opt %s --pass coalesce-regions | filecheck %s
// What is lowered is checked as programs are: by the rules of the operations that are called.
func.func @main(%x: tensor<4xf32>) -> tensor<5xf32> {
  %y = "host.call"(%x) {callee = "exp"} : (tensor<4xf32>) -> tensor<5xf32>
  func.return %y : tensor<5xf32>
}
// CHECK: a_wrong_type_after_lowering.mlir:4:3: the result of exp is !ptensor.ptensor<4 x f32>, and the text says !ptensor.ptensor<5 x f32>
