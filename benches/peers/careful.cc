// Peer 3, as a careful engineer would write it: GStreamer, OpenCV, ONNX Runtime's C API, libmosquitto, all in C++.
//
//     careful rgb|planes MODEL INPUT OUTPUT SIZE CLASSES ANCHORS NAME LABELS PORT PREFIX RATE_MAX VIDEO…
//
// rgb: videoconvert makes RGB of the whole picture, then OpenCV shrinks it. planes: OpenCV shrinks the planes that the
// video decoder made, then one pass makes colours of the little that is left. Whatever can be made once is made once.
// A frame is looked at on the thread that decoded it, so it is still in the cache and wakes nobody up.
#include <gst/app/gstappsink.h>
#include <gst/gst.h>
#include <gst/video/video.h>
#include <mosquitto.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <mutex>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <vector>

#include "onnxruntime.hpp"

using Clock = std::chrono::steady_clock;

namespace {

constexpr float kScore = 0.25F, kIou = 0.5F, kPad = 114.0F / 255.0F;

struct Options {
    bool planes;
    std::string model, input, output, name, prefix;
    int size, classes, anchors, port;
    double rate_max;
    std::vector<std::string> labels, videos;
};

struct Found {
    float score, x1, y1, x2, y2;
    int class_id;
};

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

[[noreturn]] void fail(const std::string& text) {
    std::fprintf(stderr, "careful: %s\n", text.c_str());
    std::exit(1);
}

// The cores that this program may use: the video decoder would take those of the machine.
int cores() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// The broker: QoS 1, sent by libmosquitto's own thread.
class Outlet {
  public:
    explicit Outlet(int port) {
        mosquitto_lib_init();
        client_ = mosquitto_new(nullptr, true, this);
        mosquitto_int_option(client_, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
        mosquitto_int_option(client_, MOSQ_OPT_TCP_NODELAY, 1);
        mosquitto_publish_callback_set(client_, [](mosquitto*, void* self, int) {
            static_cast<Outlet*>(self)->acknowledged_++;
        });
        if (mosquitto_connect(client_, "127.0.0.1", port, 60) != MOSQ_ERR_SUCCESS) fail("there is no broker");
        mosquitto_loop_start(client_);
    }

    void publish(const char* topic, const char* payload, int length) {
        if (mosquitto_publish(client_, nullptr, topic, length, payload, 1, false) != MOSQ_ERR_SUCCESS) {
            fail("the broker is gone");
        }
        sent_++;
    }

    // Waits until the broker has everything.
    void close() {
        while (acknowledged_ < sent_) g_usleep(1000);
        mosquitto_disconnect(client_);
        mosquitto_loop_stop(client_, false);
    }

  private:
    mosquitto* client_;
    std::atomic<long> sent_{0}, acknowledged_{0};
};

// Everything behind the video decoders. One frame at a time.
class Detector {
  public:
    explicit Detector(const Options& options)
        : options_(options),
          outlet_(options.port),
          model_(options.model.c_str(), options.input.c_str(), options.output.c_str(), 1, options.size,
                 4 + options.classes, options.anchors),
          best_(options.anchors),
          class_(options.anchors),
          text_(1 << 16) {
        cv::setNumThreads(1);
        gchar* uuid = g_uuid_string_random();
        boot_id_ = uuid;
        g_free(uuid);
    }

    void look(int camera, long id, GstSample* sample) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto decoded = Clock::now();
        GstVideoInfo info;
        GstVideoFrame frame;
        if (!gst_video_info_from_caps(&info, gst_sample_get_caps(sample)) ||
            !gst_video_frame_map(&frame, &info, gst_sample_get_buffer(sample), GST_MAP_READ)) {
            fail("a frame cannot be read");
        }
        fit(info.width, info.height);
        if (options_.planes) {
            fill_from_planes(frame);
        } else {
            fill_from_rgb(frame);
        }
        gst_video_frame_unmap(&frame);
        const auto prepared = Clock::now();
        model_.run();
        const auto run = Clock::now();
        decode();
        report(camera, id, decoded, prepared, run);
    }

    void close() { outlet_.close(); }

  private:
    // Where the picture lies in the model's input. The padding is written when that changes.
    void fit(int width, int height) {
        if (width == width_ && height == height_) return;
        width_ = width, height_ = height;
        scale_ = std::min(float(options_.size) / width, float(options_.size) / height);
        small_ = cv::Size(int(std::lround(width * scale_)), int(std::lround(height * scale_)));
        left_ = (options_.size - small_.width) / 2, top_ = (options_.size - small_.height) / 2;
        std::fill_n(model_.input(), 3 * options_.size * options_.size, kPad);
    }

    static cv::Mat plane(const GstVideoFrame& frame, int index, int type) {
        return cv::Mat(GST_VIDEO_FRAME_COMP_HEIGHT(&frame, index), GST_VIDEO_FRAME_COMP_WIDTH(&frame, index), type,
                       GST_VIDEO_FRAME_PLANE_DATA(&frame, index), GST_VIDEO_FRAME_PLANE_STRIDE(&frame, index));
    }

    float* row(int channel, int y) {
        return model_.input() + (size_t(channel) * options_.size + top_ + y) * options_.size + left_;
    }

    void fill_from_rgb(const GstVideoFrame& frame) {
        const cv::Mat picture(height_, width_, CV_8UC3, GST_VIDEO_FRAME_PLANE_DATA(&frame, 0),
                              GST_VIDEO_FRAME_PLANE_STRIDE(&frame, 0));
        cv::resize(picture, rgb_, small_, 0, 0, cv::INTER_LINEAR);
        for (int y = 0; y < small_.height; y++) {
            const uint8_t* from = rgb_.ptr(y);
            float *red = row(0, y), *green = row(1, y), *blue = row(2, y);
            for (int x = 0; x < small_.width; x++) {
                red[x] = from[3 * x] * (1.0F / 255), green[x] = from[3 * x + 1] * (1.0F / 255);
                blue[x] = from[3 * x + 2] * (1.0F / 255);
            }
        }
    }

    void fill_from_planes(const GstVideoFrame& frame) {
        cv::resize(plane(frame, 0, CV_8UC1), planes_[0], small_, 0, 0, cv::INTER_LINEAR);
        cv::resize(plane(frame, 1, CV_8UC1), planes_[1], small_, 0, 0, cv::INTER_LINEAR);
        cv::resize(plane(frame, 2, CV_8UC1), planes_[2], small_, 0, 0, cv::INTER_LINEAR);
        gdouble kr = 0.2126, kb = 0.0722;
        gst_video_color_matrix_get_Kr_Kb(frame.info.colorimetry.matrix, &kr, &kb);
        const bool full = frame.info.colorimetry.range == GST_VIDEO_COLOR_RANGE_0_255;
        const float low = full ? 0 : 16, gain = 1.0F / (full ? 255 : 219), chroma = 1.0F / (full ? 255 : 224);
        const auto kg = float(1 - kr - kb);
        const float red_v = float(2 * (1 - kr)) * chroma, blue_u = float(2 * (1 - kb)) * chroma;
        const float green_u = float(-kb) / kg * blue_u, green_v = float(-kr) / kg * red_v;
        const auto clamp = [](float value) { return std::min(std::max(value, 0.0F), 1.0F); };
        for (int y = 0; y < small_.height; y++) {
            const uint8_t *luma = planes_[0].ptr(y), *from_u = planes_[1].ptr(y), *from_v = planes_[2].ptr(y);
            float* __restrict red = row(0, y);
            float* __restrict green = row(1, y);
            float* __restrict blue = row(2, y);
            for (int x = 0; x < small_.width; x++) {
                const float light = (luma[x] - low) * gain, u = from_u[x] - 128.0F, v = from_v[x] - 128.0F;
                red[x] = clamp(light + red_v * v);
                green[x] = clamp(light + green_u * u + green_v * v);
                blue[x] = clamp(light + blue_u * u);
            }
        }
    }

    // Thresholds first, class by class along the rows, then greedy suppression within a class.
    void decode() {
        const int anchors = options_.anchors;
        const float* output = model_.output();
        float* __restrict best = best_.data();
        int* __restrict which = class_.data();
        std::fill_n(best, anchors, 0.0F);
        for (int label = 0; label < options_.classes; label++) {
            const float* scores = output + size_t(4 + label) * anchors;
            for (int i = 0; i < anchors; i++) {
                which[i] = scores[i] > best[i] ? label : which[i];
                best[i] = std::max(scores[i], best[i]);
            }
        }
        candidates_.clear(), found_.clear();
        for (int i = 0; i < anchors; i++) {
            if (best[i] < kScore) continue;
            const float x = output[i], y = output[anchors + i];
            const float w = output[2 * anchors + i] / 2, h = output[3 * anchors + i] / 2;
            candidates_.push_back({best[i], x - w, y - h, x + w, y + h, which[i]});
        }
        std::sort(candidates_.begin(), candidates_.end(), [](auto& a, auto& b) { return a.score > b.score; });
        for (const Found& candidate : candidates_) {
            const bool covered = std::any_of(found_.begin(), found_.end(), [&](const Found& other) {
                return other.class_id == candidate.class_id && iou(other, candidate) > kIou;
            });
            if (!covered) found_.push_back(candidate);
        }
        for (Found& found : found_) {
            found.x1 = std::clamp((found.x1 - left_) / scale_, 0.0F, float(width_));
            found.x2 = std::clamp((found.x2 - left_) / scale_, 0.0F, float(width_));
            found.y1 = std::clamp((found.y1 - top_) / scale_, 0.0F, float(height_));
            found.y2 = std::clamp((found.y2 - top_) / scale_, 0.0F, float(height_));
        }
    }

    static float iou(const Found& a, const Found& b) {
        const float w = std::min(a.x2, b.x2) - std::max(a.x1, b.x1), h = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
        if (w <= 0 || h <= 0) return 0;
        return w * h / ((a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1) - w * h);
    }

    void report(int camera, long id, Clock::time_point decoded, Clock::time_point prepared, Clock::time_point run) {
        char stamp[40], topic[128];
        timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        tm parts;
        gmtime_r(&now.tv_sec, &parts);
        const size_t seconds = std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &parts);
        std::snprintf(stamp + seconds, sizeof stamp - seconds, ".%06ldZ", now.tv_nsec / 1000);
        std::snprintf(topic, sizeof topic, "%s/bench/camera/c%d/detections", options_.prefix.c_str(), camera);
        int at = 0;
        const auto add = [&](const char* format, auto... values) {
            at += std::snprintf(text_.data() + at, text_.size() - at, format, values...);
        };
        add("{\"schema\":\"gantry.detections/1\",\"node\":\"bench\",\"camera\":\"c%d\",\"boot_id\":\"%s\",\"seq\":%ld,"
            "\"captured_at\":\"%s\",\"capture_clock\":\"file\",\"received_at\":\"%s\",\"age_ms\":null,"
            "\"model\":{\"name\":\"%s\",\"version\":\"1.0.0\",\"device\":\"cpu0\"},"
            "\"frame\":{\"id\":%ld,\"width\":%d,\"height\":%d},\"detections\":[",
            camera, boot_id_.c_str(), id, stamp, stamp, options_.name.c_str(), id, width_, height_);
        const char* comma = "";
        for (const Found& found : found_) {
            if (text_.size() - at < 1024) break;
            add("%s{\"label\":\"%s\",\"class_id\":%d,\"score\":%.4f,\"box\":{\"x\":%.1f,\"y\":%.1f,\"w\":%.1f,\"h\":%.1f}}",
                comma, options_.labels[found.class_id].c_str(), found.class_id, found.score, found.x1, found.y1,
                found.x2 - found.x1, found.y2 - found.y1);
            comma = ",";
        }
        add("],\"stage_ms\":{\"preprocess\":%.3f,\"infer\":%.3f,\"postprocess\":%.3f}}", milliseconds(prepared - decoded),
            milliseconds(run - prepared), milliseconds(Clock::now() - run));
        outlet_.publish(topic, text_.data(), at);
    }

    const Options& options_;
    std::mutex mutex_;
    Outlet outlet_;
    Model model_;
    std::string boot_id_;
    int width_ = 0, height_ = 0, left_ = 0, top_ = 0;
    float scale_ = 1;
    cv::Size small_;
    cv::Mat rgb_, planes_[3];
    std::vector<float> best_;
    std::vector<int> class_;
    std::vector<Found> candidates_, found_;
    std::vector<char> text_;
};

// One video, decoded on GStreamer's thread.
class Camera {
  public:
    Camera(int index, const std::string& video, const Options& options, Detector& detector)
        : index_(index), rate_max_(options.rate_max), detector_(detector) {
        const bool live = video.rfind("rtsp://", 0) == 0;
        const std::string text = (live ? "rtspsrc protocols=tcp latency=0 location=\"" + video + "\" ! rtph264depay"
                                       : "filesrc location=\"" + video + "\" ! qtdemux") +
                                 " ! h264parse ! avdec_h264 max-threads=" + std::to_string(cores()) + " ! " +
                                 (options.planes ? "video/x-raw,format=I420" : "videoconvert ! video/x-raw,format=RGB") +
                                 " ! appsink name=sink sync=false max-buffers=1";
        pipeline_ = gst_parse_launch(text.c_str(), nullptr);
        if (!pipeline_) fail("GStreamer lacks an element");
        GstElement* sink = gst_bin_get_by_name(GST_BIN(pipeline_), "sink");
        GstAppSinkCallbacks callbacks{};
        callbacks.new_sample = [](GstAppSink* from, gpointer self) {
            return static_cast<Camera*>(self)->take(gst_app_sink_pull_sample(from));
        };
        gst_app_sink_set_callbacks(GST_APP_SINK(sink), &callbacks, this, nullptr);
        // appsink does not say that it reads strides and offsets; without that the video decoder copies each picture.
        GstPad* pad = gst_element_get_static_pad(sink, "sink");
        const auto answer = [](GstPad*, GstPadProbeInfo* info, gpointer) {
            GstQuery* query = GST_PAD_PROBE_INFO_QUERY(info);
            if (GST_QUERY_TYPE(query) != GST_QUERY_ALLOCATION) return GST_PAD_PROBE_OK;
            gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
            return GST_PAD_PROBE_HANDLED;
        };
        gst_pad_add_probe(pad, GST_PAD_PROBE_TYPE_QUERY_DOWNSTREAM, answer, nullptr, nullptr);
        gst_element_set_state(pipeline_, GST_STATE_PLAYING);
    }

    void wait() {
        GstBus* bus = gst_element_get_bus(pipeline_);
        const auto kinds = GstMessageType(GST_MESSAGE_EOS | GST_MESSAGE_ERROR);
        GstMessage* message = gst_bus_timed_pop_filtered(bus, GST_CLOCK_TIME_NONE, kinds);
        if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) fail("a video cannot be played");
        gst_element_set_state(pipeline_, GST_STATE_NULL);
    }

  private:
    GstFlowReturn take(GstSample* sample) {
        id_++;
        const GstClockTime at = GST_BUFFER_PTS(gst_sample_get_buffer(sample));
        if (rate_max_ <= 0 || double(at) / GST_SECOND >= next_) {
            if (rate_max_ > 0) next_ = std::floor(double(at) / GST_SECOND * rate_max_ + 1) / rate_max_;
            detector_.look(index_, id_, sample);
        }
        gst_sample_unref(sample);
        return GST_FLOW_OK;
    }

    int index_;
    long id_ = 0;
    double rate_max_, next_ = 0;
    GstElement* pipeline_;
    Detector& detector_;
};

Options read(int count, char** words) {
    if (count < 14) fail("see the top of careful.cc for the arguments");
    Options options{};
    options.planes = std::strcmp(words[1], "planes") == 0;
    options.model = words[2], options.input = words[3], options.output = words[4];
    options.size = std::atoi(words[5]), options.classes = std::atoi(words[6]), options.anchors = std::atoi(words[7]);
    options.name = words[8];
    std::ifstream labels(words[9]);
    for (std::string line; std::getline(labels, line);) options.labels.push_back(line);
    options.port = std::atoi(words[10]), options.prefix = words[11], options.rate_max = std::atof(words[12]);
    options.videos.assign(words + 13, words + count);
    if (int(options.labels.size()) < options.classes) fail("there are fewer labels than classes");
    return options;
}

}  // namespace

int main(int count, char** words) {
    gst_init(nullptr, nullptr);
    const Options options = read(count, words);
    try {
        Detector detector(options);
        std::vector<std::unique_ptr<Camera>> cameras;
        for (const std::string& video : options.videos) {
            cameras.push_back(std::make_unique<Camera>(int(cameras.size()), video, options, detector));
        }
        for (auto& camera : cameras) camera->wait();
        detector.close();
    } catch (const std::exception& error) {
        fail(error.what());
    }
}
