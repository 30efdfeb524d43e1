// This file turns nested Python lists into packed numbers: one pass counts, and one pass writes. The caller holds the
// interpreter lock. Only what is stable between versions of Python is used, so that one library fits all of them. Where
// Python has no headers, the library is built without these functions.
#if __has_include(<Python.h>)
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <cstdint>

namespace {

struct Items {
  PyObject* given;
  PyObject* (*get)(PyObject*, Py_ssize_t) = nullptr;
  Py_ssize_t size = -1;  // -1 if the object is no list or tuple.

  PyObject* operator[](Py_ssize_t i) const { return get(given, i); }
};

inline Items items_of(PyObject* given) {
  if (PyList_CheckExact(given)) return {given, PyList_GetItem, PyList_Size(given)};
  if (PyTuple_CheckExact(given)) return {given, PyTuple_GetItem, PyTuple_Size(given)};
  return {given};
}

// Adds to counts[d] the number of entries inside d + 1 lists. Returns false if something else stands for a list.
bool count(PyObject* given, int64_t depth, int64_t* counts) {
  const Items items = items_of(given);
  if (items.size < 0) return false;
  counts[0] += items.size;
  if (depth == 0) return true;
  for (Py_ssize_t i = 0; i < items.size; ++i)
    if (!count(items[i], depth - 1, counts + 1)) return false;
  return true;
}

struct Integer {
  using Stored = int64_t;
  static bool read(PyObject* given, int64_t& value) {
    if (!PyLong_CheckExact(given)) return false;
    int overflow = 0;
    value = PyLong_AsLongLongAndOverflow(given, &overflow);
    return overflow == 0;
  }
};

struct Floating {
  using Stored = double;
  static bool read(PyObject* given, double& value) {
    if (PyFloat_CheckExact(given)) {
      value = PyFloat_AsDouble(given);
      return true;
    }
    int64_t read = 0;  // An int that does not fit int64 is left to the caller, who may want to refuse it.
    if (!Integer::read(given, read)) return false;
    value = static_cast<double>(read);
    return true;
  }
};

struct Boolean {
  using Stored = uint8_t;
  static bool read(PyObject* given, uint8_t& value) {
    value = given == Py_True;
    return given == Py_True || given == Py_False;
  }
};

// The memory to write to. `written` counts the entries that were written at each level, and `counts` is the room: lists
// may have changed since they were counted.
struct Output {
  int64_t** offsets;
  const int64_t* counts;
  int64_t* written;
  void* values;
};

template <class Kind>
bool write(PyObject* given, int64_t depth, int64_t level, const Output& out) {
  const Items items = items_of(given);
  int64_t& written = out.written[level];
  if (items.size < 0 || items.size > out.counts[level] - written) return false;
  if (depth == 0) {
    auto* values = static_cast<typename Kind::Stored*>(out.values);
    for (Py_ssize_t i = 0; i < items.size; ++i, ++written)
      if (!Kind::read(items[i], values[written])) return false;
    return true;
  }
  for (Py_ssize_t i = 0; i < items.size; ++i) {
    if (!write<Kind>(items[i], depth - 1, level + 1, out)) return false;
    out.offsets[level][++written] = out.written[level + 1];
  }
  return true;
}

template <class Kind>
int64_t filled(PyObject* given, int64_t depth, const Output& out) {
  for (int64_t level = 0; level < depth; ++level) out.offsets[level][0] = 0;
  if (!write<Kind>(given, depth, 0, out)) return 0;
  for (int64_t level = 0; level <= depth; ++level)
    if (out.written[level] != out.counts[level]) return 0;
  return 1;
}

}  // namespace

extern "C" int64_t serrate_count(PyObject* given, int64_t depth, int64_t* counts) { return count(given, depth, counts); }

// offsets[level] has room for counts[level] + 1 entries, and values for counts[depth]; written has depth + 1 zeros.
// Returns 1 if everything was written.
extern "C" int64_t serrate_fill(PyObject* given, int64_t depth, int64_t kind, int64_t** offsets, const int64_t* counts,
                                int64_t* written, void* values) {
  const Output out{offsets, counts, written, values};
  switch (kind) {
    case 0: return filled<Integer>(given, depth, out);
    case 1: return filled<Floating>(given, depth, out);
    default: return filled<Boolean>(given, depth, out);
  }
}

#endif
