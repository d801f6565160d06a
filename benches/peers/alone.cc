// Parts by themselves, over and over, as yardsticks. Their processor time is taken from outside, as every program's.
//
//     alone model MODEL INPUT OUTPUT SIZE CLASSES ANCHORS RUNS   the model on one prepared tensor
//     alone version               ONNX Runtime's
//     alone opencv SIZE RUNS      what people write with OpenCV for 1080p NV12 → letterboxed RGB float tensor
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <random>
#include <vector>

#include "onnxruntime.hpp"

namespace {

int model(char** words) {
    const int size = std::atoi(words[5]), classes = std::atoi(words[6]), runs = std::atoi(words[8]);
    Model model(words[2], words[3], words[4], 1, size, 4 + classes, std::atoi(words[7]));
    std::mt19937 random(1);
    std::generate_n(model.input(), size_t(3) * size * size, [&] { return float(random() % 256) / 255; });
    for (int i = 0; i < runs; i++) model.run();
    return 0;
}

// Four calls; split is what puts the channels one after the other. All memory is used again.
int opencv(char** words) {
    const int size = std::atoi(words[2]), runs = std::atoi(words[3]);
    cv::setNumThreads(1);
    cv::Mat luma(1080, 1920, CV_8UC1), chroma(540, 960, CV_8UC2), rgb, padded(size, size, CV_8UC3, {114, 114, 114}), floats;
    cv::randu(luma, 16, 236), cv::randu(chroma, 16, 241);
    const cv::Rect inside(0, (size - size * 1080 / 1920) / 2, size, size * 1080 / 1920);
    cv::Mat small = padded(inside);
    std::vector<float> tensor(size_t(3) * size * size);
    std::vector<cv::Mat> channels;
    for (int i = 0; i < 3; i++) channels.emplace_back(size, size, CV_32F, tensor.data() + size_t(i) * size * size);
    for (int i = 0; i < runs; i++) {
        cv::cvtColorTwoPlane(luma, chroma, rgb, cv::COLOR_YUV2RGB_NV12);
        cv::resize(rgb, small, small.size(), 0, 0, cv::INTER_LINEAR);
        padded.convertTo(floats, CV_32F, 1.0 / 255);
        cv::split(floats, channels);
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    try {
        if (count == 9 && std::strcmp(words[1], "model") == 0) return model(words);
        if (count == 2 && std::strcmp(words[1], "version") == 0) return std::puts(Model::version()) < 0;
        if (count == 4 && std::strcmp(words[1], "opencv") == 0) return opencv(words);
        std::fprintf(stderr, "alone: see the top of alone.cc for the arguments\n");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "alone: %s\n", error.what());
    }
    return 1;
}
