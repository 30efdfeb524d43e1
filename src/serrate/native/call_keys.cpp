// This file reads the arguments of a call in one pass and makes a key of them: calls with equal keys have arguments of
// the same kinds, dtypes, devices, structures and feature sizes, and numbers of the same value. What it does not know it
// leaves to the caller. The caller holds the interpreter lock. Only what is stable between versions of Python is used,
// and of torch the exchange functions of DLPack, so that one library fits all versions. Where Python has no headers, the
// library is built without these functions.
#if __has_include(<Python.h>)
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <cstdint>
#include <cstring>

namespace {

// What DLPack says of a tensor, and how a library hands that out, from its first major version on.
struct DLTensor {
  void* data;
  int32_t device, device_number;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct DLExchange {
  uint32_t major, minor;
  DLExchange* before;
  void* unused[3];
  int (*describe)(void* tensor, DLTensor* out);
};

constexpr uint32_t kMajor = 1;
constexpr int kWords = 512, kObjects = 96, kPartitions = 32, kDepth = 16;

enum Kind : int64_t { kTensor, kParameter, kDense, kRagged, kFloat, kInteger, kConstant, kTuple, kList, kNamed };
enum class First { kLoose, kLeftOut, kWhole };  // What the key has of the size of the first axis.

struct Reader {
  decltype(DLExchange::describe) describe;
  PyTypeObject *tensor, *parameter, *ragged;
  PyObject *dense, *signature_of, *constants;
  PyObject *values, *structure, *order, *requires_grad;  // names of attributes
};

// The key of one call, while it is made.
struct Key {
  const Reader& reader;
  PyObject* tensors;
  int64_t words[kWords];
  int count = 0;
  PyObject* objects[kObjects];  // owned
  int held = 0;
  PyObject* partitions[kPartitions];  // borrowed from structures, which the arguments hold
  int met = 0;

  Key(const Reader& reader, PyObject* tensors) : reader(reader), tensors(tensors) {}
  ~Key() {
    for (int i = 0; i < held; ++i) Py_DecRef(objects[i]);
  }

  bool word(int64_t value) {
    if (count == kWords) return false;
    words[count++] = value;
    return true;
  }

  bool object(PyObject* given) {  // takes the reference over
    if (given == nullptr) return false;
    if (held == kObjects) {
      Py_DecRef(given);
      return false;
    }
    objects[held++] = given;
    return true;
  }

  // Adds what decides of a torch tensor: dtype, device, whether it needs gradients, and sizes.
  bool describe(PyObject* given, First first) {
    DLTensor tensor;
    if (reader.describe(given, &tensor) != 0) return false;
    PyObject* asks = PyObject_GetAttr(given, reader.requires_grad);
    if (asks == nullptr) return false;
    Py_DecRef(asks);  // True and False outlive it
    int64_t packed = tensor.code | int64_t(tensor.bits) << 8 | int64_t(tensor.lanes) << 16 | int64_t(tensor.rank) << 32;
    if (!word(packed << 1 | (asks == Py_True))) return false;
    if (!word(int64_t(tensor.device) << 32 | uint32_t(tensor.device_number))) return false;
    for (int i = 0; i < tensor.rank; ++i) {
      int64_t size = tensor.shape[i];
      if (i == 0 && first == First::kLeftOut) continue;
      if (i == 0 && first == First::kLoose && size != 1) size = -1;
      if (!word(size)) return false;
    }
    return true;
  }

  bool is_torch(PyObject* given) const {
    return Py_TYPE(given) == reader.tensor || Py_TYPE(given) == reader.parameter;
  }

  // The number of a partition: equal partitions are told by their identity, in the order in which they first occur.
  bool partition(PyObject* given) {
    int number = 0;
    while (number < met && partitions[number] != given) ++number;
    if (number == kPartitions) return false;
    if (number == met) partitions[met++] = given;
    return word(number);
  }

  bool ragged(PyObject* given) {
    PyObject* values = PyObject_GetAttr(given, reader.values);
    PyObject* structure = PyObject_GetAttr(given, reader.structure);
    const bool known = values != nullptr && structure != nullptr && is_torch(values) &&
                       object(PyObject_GetAttr(given, reader.order)) && packed(values, structure);
    Py_DecRef(values);  // null is allowed; the argument holds both
    Py_DecRef(structure);
    return known && PyList_Append(tensors, given) == 0;
  }

  bool packed(PyObject* values, PyObject* structure) {
    if (structure == reader.dense) return word(kDense) && describe(values, First::kLoose);
    PyObject* pair = PyObject_CallFunctionObjArgs(reader.signature_of, structure, nullptr);
    if (pair == nullptr) return false;
    PyObject *axes = PyTuple_GetItem(pair, 0), *cuts = PyTuple_GetItem(pair, 1);
    bool known = axes != nullptr && cuts != nullptr && word(kRagged) && object(Py_NewRef(axes));
    const Py_ssize_t size = known ? PyTuple_Size(cuts) : 0;
    known = known && word(size);
    for (Py_ssize_t i = 0; i < size && known; ++i) known = partition(PyTuple_GetItem(cuts, i));
    Py_DecRef(pair);
    return known && describe(values, First::kLeftOut);
  }

  bool constant(PyObject* given) {
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(given));
    for (Py_ssize_t i = 0; i < PyTuple_Size(reader.constants); ++i)
      if (PyTuple_GetItem(reader.constants, i) == type) return word(kConstant) && word(i) && object(Py_NewRef(given));
    return false;
  }

  // Adds one argument. Returns false for what is left to the caller; an error of Python may be set then.
  bool look(PyObject* given, int depth) {
    PyTypeObject* type = Py_TYPE(given);
    if (type == reader.tensor) {
      return word(kTensor) && describe(given, First::kLoose) && PyList_Append(tensors, given) == 0;
    }
    if (type == reader.parameter) {
      return word(kParameter) && describe(given, First::kWhole) && PyList_Append(tensors, given) == 0;
    }
    if (type == reader.ragged) return ragged(given);
    if (PyFloat_CheckExact(given)) {
      const double value = PyFloat_AsDouble(given);
      int64_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      return word(kFloat) && word(bits);
    }
    if (PyLong_CheckExact(given)) {
      int overflow = 0;
      const int64_t value = PyLong_AsLongLongAndOverflow(given, &overflow);
      return overflow == 0 && word(kInteger) && word(value);
    }
    const bool is_tuple = PyTuple_CheckExact(given);
    if (is_tuple || PyList_CheckExact(given)) {
      const Py_ssize_t size = is_tuple ? PyTuple_Size(given) : PyList_Size(given);
      if (depth == kDepth || !word(is_tuple ? kTuple : kList) || !word(size)) return false;
      for (Py_ssize_t i = 0; i < size; ++i)
        if (!look(is_tuple ? PyTuple_GetItem(given, i) : PyList_GetItem(given, i), depth + 1)) return false;
      return true;
    }
    return constant(given);
  }

  bool look_at_all(PyObject* arguments, PyObject* named) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(arguments); ++i)
      if (!look(PyTuple_GetItem(arguments, i), 0)) return false;
    Py_ssize_t place = 0;
    PyObject *name, *given;
    while (PyDict_Next(named, &place, &name, &given))
      if (!word(kNamed) || !object(Py_NewRef(name)) || !look(given, 0)) return false;
    return true;
  }

  PyObject* made() {
    PyObject* bytes = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(words), count * sizeof(int64_t));
    PyObject* key = bytes == nullptr ? nullptr : PyTuple_New(held + 1);
    if (key == nullptr) {
      Py_DecRef(bytes);
      return nullptr;
    }
    PyTuple_SetItem(key, 0, bytes);
    for (int i = 0; i < held; ++i) PyTuple_SetItem(key, i + 1, objects[i]);
    held = 0;  // the key holds them now
    return key;
  }
};

const char kName[] = "serrate.reader";

// Gives the key of the arguments of a call, a tuple of positional ones and a dict of those by name, with a list of the
// tensors among them; None where an argument is of a kind that it does not know.
PyObject* read(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  const auto* reader = static_cast<const Reader*>(PyCapsule_GetPointer(self, kName));
  if (reader == nullptr) return nullptr;
  if (count != 2 || !PyTuple_CheckExact(given[0]) || !PyDict_CheckExact(given[1])) {
    PyErr_SetString(PyExc_TypeError, "a tuple of arguments and a dict of named ones are expected");
    return nullptr;
  }
  PyObject* tensors = PyList_New(0);
  if (tensors == nullptr) return nullptr;
  PyObject* key = nullptr;
  {
    Key made(*reader, tensors);
    if (made.look_at_all(given[0], given[1])) key = made.made();
  }
  if (key == nullptr) {
    PyErr_Clear();  // the caller looks again, and raises what is to be raised
    Py_DecRef(tensors);
    return Py_NewRef(Py_None);
  }
  PyObject* pair = PyTuple_New(2);
  if (pair == nullptr) {
    Py_DecRef(key);
    Py_DecRef(tensors);
    return nullptr;
  }
  PyTuple_SetItem(pair, 0, key);
  PyTuple_SetItem(pair, 1, tensors);
  return pair;
}

PyMethodDef definition = {"key_of", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(read)), METH_FASTCALL,
                          "The key of the arguments of a call, and the tensors among them; None if it has none."};

}  // namespace

// Makes the function that reads calls, of what it has to know: the capsule of DLPack's exchange functions of torch's
// tensors; the classes of tensors, parameters and ragged tensors; the structure of dense ones; a function that gives of
// a structure what a key has of it and its partitions; and the classes of constants that count by their value.
extern "C" PyObject* serrate_call_keys(PyObject* exchange, PyObject* tensor, PyObject* parameter, PyObject* ragged,
                                       PyObject* dense, PyObject* signature_of, PyObject* constants) {
  const auto* functions = static_cast<const DLExchange*>(PyCapsule_GetPointer(exchange, "dlpack_exchange_api"));
  if (functions == nullptr) return nullptr;
  if (functions->major != kMajor || functions->describe == nullptr || !PyTuple_CheckExact(constants)) {
    return Py_NewRef(Py_None);
  }
  auto* reader = new Reader{
      functions->describe,
      reinterpret_cast<PyTypeObject*>(Py_NewRef(tensor)),
      reinterpret_cast<PyTypeObject*>(Py_NewRef(parameter)),
      reinterpret_cast<PyTypeObject*>(Py_NewRef(ragged)),
      Py_NewRef(dense),
      Py_NewRef(signature_of),
      Py_NewRef(constants),
      PyUnicode_InternFromString("values"),
      PyUnicode_InternFromString("structure"),
      PyUnicode_InternFromString("order"),
      PyUnicode_InternFromString("requires_grad"),
  };  // as long as the process lives, as the function does
  PyObject* self = PyCapsule_New(reader, kName, nullptr);
  if (self == nullptr) return nullptr;
  PyObject* made = PyCFunction_NewEx(&definition, self, nullptr);
  Py_DecRef(self);
  return made;
}
#endif
