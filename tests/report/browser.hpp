// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <httplib.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// A headless Chromium, driven by chromedriver over WebDriver (W3C) at the loopback address.
namespace browser {

using Json = nlohmann::json;

/// The path of a program that `PATH` knows; empty where it knows none.
inline std::string find_program(const std::string& name) {
    std::string folders = ::getenv("PATH") != nullptr ? ::getenv("PATH") : "";
    for (std::size_t at = 0; at <= folders.size();) {
        const std::size_t end = std::min(folders.find(':', at), folders.size());
        const std::string path = folders.substr(at, end - at) + '/' + name;
        if (::access(path.c_str(), X_OK) == 0) return path;
        at = end + 1;
    }
    return "";
}

inline std::string decode_base64(std::string_view text) {
    std::string bytes;
    unsigned bits = 0;
    int count = 0;
    for (const char c : text) {
        const std::string_view alphabet =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const std::size_t value = alphabet.find(c);
        if (value == std::string_view::npos) break;
        bits = (bits << 6U) | static_cast<unsigned>(value);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes += static_cast<char>((bits >> static_cast<unsigned>(count)) & 0xFFU);
    }
    return bytes;
}

class Browser {
public:
    Browser(const std::string& chromium, const std::string& driver) {
        std::string folder =
            (std::filesystem::temp_directory_path() / "kdvfs_page_XXXXXX").string();
        if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
        folder_ = folder;
        start_driver(driver);
        const Json answer = post(
            "/session",
            {{"capabilities",
              {{"alwaysMatch",
                {{"goog:loggingPrefs", {{"browser", "ALL"}}},
                 {"goog:chromeOptions",
                  {{"binary", chromium},
                   {"args",
                    {"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
                     "--no-first-run", "--disable-background-networking",
                     "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                     "--window-size=1100,1400", "--user-data-dir=" + folder_ + "/profile"}}}}}}}}});
        session_ = "/session/" + answer.at("sessionId").get<std::string>();
    }
    Browser(const Browser&) = delete;
    Browser& operator=(const Browser&) = delete;
    ~Browser() {
        if (http_ && !session_.empty()) http_->Delete(session_.c_str());
        if (driver_ > 0) {
            ::kill(driver_, SIGTERM);
            ::waitpid(driver_, nullptr, 0);
        }
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    void open(const std::filesystem::path& page) {
        post(session_ + "/url", {{"url", "file://" + page.string()}});
    }
    /// What a script returns: `return ...;`
    Json run(const std::string& script) {
        return post(session_ + "/execute/sync", {{"script", script}, {"args", Json::array()}});
    }
    /// What the console has said since the last call.
    Json console() { return post(session_ + "/se/log", {{"type", "browser"}}); }
    void prefer(const std::string& scheme) {
        post(session_ + "/goog/cdp/execute",
             {{"cmd", "Emulation.setEmulatedMedia"},
              {"params", {{"features", {{{"name", "prefers-color-scheme"}, {"value", scheme}}}}}}});
    }
    /// A picture of an element, as PNG.
    std::string picture(const std::string& css) {
        run("document.querySelector('" + css + "').scrollIntoView({block: 'start'});");
        const Json found = post(session_ + "/element", {{"using", "css selector"}, {"value", css}});
        const std::string id = found.begin().value();
        const auto answer = http_->Get((session_ + "/element/" + id + "/screenshot").c_str());
        return decode_base64(value_of(answer).get<std::string>());
    }

private:
    void start_driver(const std::string& driver) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error{"no pipe"};
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        std::string port = "--port=0";
        std::string program = driver;
        char* arguments[] = {program.data(), port.data(), nullptr};
        const int failed =
            ::posix_spawn(&driver_, driver.c_str(), &actions, nullptr, arguments, environ);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(ends[1]);
        output_.reset(::fdopen(ends[0], "r"));
        if (failed != 0) throw std::runtime_error{"chromedriver does not start"};
        char line[512];
        while (std::fgets(line, sizeof line, output_.get()) != nullptr) {
            int number = 0;
            const char* words = std::strstr(line, "successfully on port ");
            if (words != nullptr && std::sscanf(words, "successfully on port %d", &number) == 1) {
                http_ = std::make_unique<httplib::Client>("127.0.0.1", number);
                http_->set_read_timeout(60);
                return;
            }
        }
        throw std::runtime_error{"chromedriver named no port"};
    }

    static Json value_of(const httplib::Result& answer) {
        if (!answer) throw std::runtime_error{"chromedriver does not answer"};
        const Json json = Json::parse(answer->body);
        if (answer->status != 200) throw std::runtime_error{json.dump().substr(0, 800)};
        return json.at("value");
    }
    Json post(const std::string& path, const Json& body) {
        return value_of(http_->Post(path.c_str(), body.dump(), "application/json"));
    }

    struct Close {
        void operator()(FILE* file) const { std::fclose(file); }
    };
    std::string folder_;
    pid_t driver_ = 0;
    std::unique_ptr<FILE, Close> output_;
    std::unique_ptr<httplib::Client> http_;
    std::string session_;
};

}  // namespace browser
