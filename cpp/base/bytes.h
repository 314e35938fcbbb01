#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace sirtaki {

/// Appends plain values to a byte string. Both ends run the same build on the same kind of machine.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <class T>
  Writer& put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    out_.append(text);
    return *this;
  }
  template <class T>
  Writer& put_vector(const std::vector<T>& values) {
    put(static_cast<uint32_t>(values.size()));
    if constexpr (std::is_trivially_copyable_v<T>) {
      out_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    } else {
      for (const T& value : values) (*this)(value);
    }
    return *this;
  }
  /// Appends any of these, a struct with `encode`, or one that lists its `fields` for both ways.
  template <class T>
  Writer& operator()(const T& value) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      put_string(value);
    } else if constexpr (requires { value.encode(*this); }) {
      value.encode(*this);
    } else if constexpr (requires { T::fields(value, *this); }) {
      T::fields(value, *this);
    } else if constexpr (requires { put_vector(value); }) {
      put_vector(value);
    } else {
      put(value);
    }
    return *this;
  }

 private:
  std::string& out_;
};

/// Encodes these values, one after another.
template <class... Values>
std::string message_of(const Values&... values) {
  std::string message;
  Writer out(message);
  (out(values), ...);
  return message;
}

/// Reads what Writer wrote; throws on a short message and never reads past the end.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  template <class T>
  T get() {
    if constexpr (std::is_same_v<T, bool>) {
      return get<uint8_t>() != 0;  // no other byte is a bool
    } else {
      T value;
      std::memcpy(&value, take(sizeof value), sizeof value);
      return value;
    }
  }
  std::string get_string() {
    const auto size = get<uint32_t>();
    return std::string(take(size), size);
  }
  template <class T>
  std::vector<T> get_vector() {
    const auto size = get<uint32_t>();
    const char* from = take(size_t{size} * sizeof(T));
    std::vector<T> values(size);
    if (size > 0) std::memcpy(values.data(), from, size * sizeof(T));
    return values;
  }
  /// Reads what Writer's operator() wrote.
  template <class T>
  Reader& operator()(T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      value = get_string();
    } else if constexpr (requires { T::decode(*this); }) {
      value = T::decode(*this);
    } else if constexpr (requires { T::fields(value, *this); }) {
      T::fields(value, *this);
    } else if constexpr (requires { typename T::value_type; }) {
      using Value = typename T::value_type;
      if constexpr (std::is_trivially_copyable_v<Value>) {
        value = get_vector<Value>();
      } else {
        for (auto count = get<uint32_t>(); count > 0; --count) (*this)(value.emplace_back());
      }
    } else {
      value = get<T>();
    }
    return *this;
  }
  bool empty() const { return in_.empty(); }
  /// The bytes that have not been read.
  std::string_view rest() const { return in_; }

 private:
  const char* take(size_t size) {
    if (size > in_.size()) throw Error(ErrorCode::kInternal, "truncated control message");
    const char* at = in_.data();
    in_.remove_prefix(size);
    return at;
  }

  std::string_view in_;
};

}  // namespace sirtaki
