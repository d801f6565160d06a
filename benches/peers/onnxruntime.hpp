// The part of ONNX Runtime's C API that the C++ peers call. Its header is in no package of Debian 12 and in no wheel; its
// function table only ever grows at the end, so a slot's number (that of the official header, from 0) never changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
struct OrtApi {
    void* slot[200];
};
struct OrtApiBase {
    const OrtApi* (*get_api)(uint32_t version);
    const char* (*version)();
};
const OrtApiBase* OrtGetApiBase();
}

// One model on one thread, with input and output tensors that are made once and bound.
class Model {
  public:
    // `size` is the side of the input, `rows` × `anchors` the output of one frame.
    Model(const char* path, const char* input, const char* output, int batch, int size, int rows, int anchors)
        : input_(size_t(batch) * 3 * size * size), output_(size_t(batch) * rows * anchors) {
        api_ = OrtGetApiBase()->get_api(17);
        void *env, *options, *memory, *in, *out;
        call<3>(2, "bench", &env);  // CreateEnv, 2: warnings
        call<10>(&options);         // CreateSessionOptions
        call<24>(options, 1);       // SetIntraOpNumThreads
        call<25>(options, 1);       // SetInterOpNumThreads
        call<23>(options, 99);      // SetSessionGraphOptimizationLevel, 99: all
        call<7>(env, path, options, &session_);  // CreateSession
        call<69>(1, 0, &memory);                 // CreateCpuMemoryInfo, 1: an arena's, 0: ordinary
        const std::array<int64_t, 4> in_shape{batch, 3, size, size};
        const std::array<int64_t, 3> out_shape{batch, rows, anchors};
        const auto tensor = [&](std::vector<float>& data, const auto& shape, void** value) {
            // CreateTensorWithDataAsOrtValue, 1: float
            call<49>(memory, (void*)data.data(), data.size() * sizeof(float), shape.data(), shape.size(), 1, value);
        };
        tensor(input_, in_shape, &in);
        tensor(output_, out_shape, &out);
        call<134>(session_, &binding_);      // CreateIoBinding
        call<136>(binding_, input, in);      // BindInput
        call<137>(binding_, output, out);    // BindOutput
    }

    float* input() { return input_.data(); }
    const float* output() const { return output_.data(); }
    void run() { call<133>(session_, (void*)nullptr, binding_); }  // RunWithBinding
    static const char* version() { return OrtGetApiBase()->version(); }

  private:
    template <int Slot, typename... Arguments>
    void call(Arguments... arguments) const {
        if (void* status = reinterpret_cast<void* (*)(Arguments...)>(api_->slot[Slot])(arguments...)) {
            const auto text = reinterpret_cast<const char* (*)(void*)>(api_->slot[2]);  // GetErrorMessage
            throw std::runtime_error(std::string("ONNX Runtime: ") + text(status));
        }
    }

    const OrtApi* api_;
    void *session_, *binding_;
    std::vector<float> input_, output_;
};
