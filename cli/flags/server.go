package flags

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/server/rest/origins"
)

// serverFlags are about the server, its log and its models.
func serverFlags() []group {
	return []group{
		{flags: []flag{
			{name: "help", help: "Show this and exit with status 1."},
		}},
		{title: "Server", flags: []flag{
			{"id", "<string>", "Name of the server, as its metadata tells it. Default: triton.",
				setString(func(o *Options) *string { return &o.ServerID })},
			{"exit-timeout-secs", "<integer>", "Seconds that a graceful exit may take: requests in flight end, models " +
				"are unloaded. After that the server exits whatever still runs. Default: 30.",
				setWith(parseSeconds, func(o *Options) *time.Duration { return &o.ExitTimeout })},
			{"allow-client-shm", "<boolean>", "Let clients register shared memory and name it in requests. Default: false.",
				setBool(func(o *Options) *bool { return &o.AllowClientSHM })},
		}},
		{title: "Logging", flags: []flag{
			{"log-verbose", "<integer>", "Level of verbose lines; 0 is none. Default: 0.",
				setWith(parseVerbose, func(o *Options) *int { return &o.Log.Verbose })},
			{"log-info", "<boolean>", "Write information lines. Default: true.",
				setBool(func(o *Options) *bool { return &o.Log.Info })},
			{"log-warning", "<boolean>", "Write warning lines. Default: true.",
				setBool(func(o *Options) *bool { return &o.Log.Warning })},
			{"log-error", "<boolean>", "Write error lines. Default: true.",
				setBool(func(o *Options) *bool { return &o.Log.Error })},
			{"log-format", "<string>", "How a line begins: \"default\" (letter, month and day, time with " +
				"microseconds) or \"ISO8601\" (date and time to the second, letter). Times are UTC. Default: default.",
				setLogFormat},
			{"log-file", "<string>", "Append all lines to this file. Default: information and verbose lines go to the " +
				"standard output, warnings and errors to the standard error output.",
				setString(func(o *Options) *string { return &o.Log.File })},
		}},
		{title: "Model Repository", flags: repositoryFlags()},
	}
}

func repositoryFlags() []flag {
	return []flag{
		{"model-store", "<string>", "The same as --model-repository.", addRepository},
		{"model-repository", "<string>", "A directory of models. May be given several times; a model that lies in more " +
			"than one of them is not served.", addRepository},
		{"exit-on-error", "<boolean>", "Exit if a model fails to load at start. Default: true.",
			setBool(func(o *Options) *bool { return &o.ExitOnError })},
		{"disable-auto-complete-config", "", "Do not complete model configurations: each model needs a whole one.",
			func(p *parser, _ string) error {
				p.o.Repository.DisableAutoCompleteConfig = true
				return nil
			}},
		{"strict-readiness", "<boolean>", "Be ready only while all models are; if false, whenever the server answers. " +
			"Default: true.",
			setBool(func(o *Options) *bool { return &o.Repository.StrictReadiness })},
		{"model-control-mode", "<string>", "Which models are loaded: \"none\", all of them, once, at start; \"poll\", " +
			"all of them, and again whenever their files change; \"explicit\", those of --load-model at start, and then " +
			"what the load and unload requests say. Default: none.",
			setControlMode},
		{"repository-poll-secs", "<integer>", "Seconds between two looks at the repository in poll mode; 0: it is not looked at again. Default: 15.",
			setWith(parseSeconds, func(o *Options) *time.Duration { return &o.Repository.PollInterval })},
		{"load-model", "<string>", "A model to load at start in explicit mode. May be given several times; a single \"*\" " +
			"is all models.",
			func(p *parser, text string) error {
				p.o.Repository.StartupModels = append(p.o.Repository.StartupModels, text)
				return nil
			}},
		{"model-config-name", "<string>", "Read configs/<name>.pbtxt of a model, where there is one, in the place of its " +
			"config.pbtxt.",
			func(p *parser, text string) error {
				if text == "" {
					return errors.New("Error: empty argument for --model-config-name")
				}
				p.o.Repository.ConfigName = text
				return nil
			}},
		{"model-load-thread-count", "<integer>", "How many models are loaded side by side. Default: 4.",
			setInt(func(o *Options) *int { return &o.Repository.LoadThreads })},
		{"model-load-retry-count", "<integer>", "How often a load that failed is tried again. Default: 0.",
			setInt(func(o *Options) *int { return &o.Repository.LoadRetries })},
		{"model-namespacing", "<boolean>", "Let models of the same name live in different repositories. Default: false.",
			setBool(func(o *Options) *bool { return &o.Repository.Namespacing })},
		{"enable-peer-access", "<boolean>", "Let GPUs reach each other's memory. Default: true.",
			setBool(func(o *Options) *bool { return &o.Memory.EnablePeerAccess })},
	}
}

// ourFlags are the product's own.
func ourFlags() []group {
	return []group{{title: "OpenAI", ours: true, flags: openAIFlags()}, {title: "Nereid's own", ours: true, flags: slices.Concat([]flag{
		{"request-memory-byte-size", "<integer>", "Memory that clients may make the server take: requests that are being served, " +
			"their answers, and what is kept between them. What does not fit is refused, and everything else goes on. 0 is half of the " +
			"memory that this process may use, as the machine and all control groups around it say. Default: 0.",
			setWith(parseWholeSize, func(o *Options) *uint64 { return &o.RequestMemoryBytes })},
		{"http-cors-allow-origin", "<string>", "The origin of a page, such as https://example.org, whose scripts may use the HTTP endpoints from a browser " +
			"(CORS); \"*\" is any. May be given several times. Default: none.",
			func(p *parser, text string) error {
				if _, err := origins.New([]string{text}); err != nil {
					return err
				}
				p.o.HTTP.AllowOrigins = append(p.o.HTTP.AllowOrigins, text)
				return nil
			}},
		{"exit-delay-secs", "<integer>", "Seconds that the server goes on serving after SIGTERM, while it says that it is not ready and asks clients to " +
			"connect elsewhere. What --exit-timeout-secs is for comes after them. Default: 0.",
			setWith(parseSeconds, func(o *Options) *time.Duration { return &o.ExitDelay })},
		{"strict-outputs", "<boolean>", "Answer with an error where a model's output is not in its configuration, or has another data type or " +
			"shape; if false, the log has one warning for each model and output. Default: false.",
			setBool(func(o *Options) *bool { return &o.StrictOutputs })},
		{"dev", "", "Load a model anew when its sources change (.py and .pbtxt files in its directory), with requests waiting meanwhile and the last good " +
			"version serving on after an error, and give the terminal to breakpoint() in models. Time limits of models do not hold.",
			func(p *parser, _ string) error {
				p.o.Repository.Develop = true
				return nil
			}},
	}, recordFlags(), pageFlags(), limitFlags(), modelLimitFlags(), []flag{
		{name: "version", help: "Show the version of this binary and exit."},
	})}}
}

// parseVerbose reads the level of verbose lines, once a boolean.
func parseVerbose(text string) (int, error) {
	switch strings.ToLower(text) {
	case "true":
		return 1, nil
	case "false":
		return 0, nil
	}
	return parseInt(text)
}

func setLogFormat(p *parser, text string) error {
	switch text {
	case "default", "ISO8601":
		p.o.Log.ISO8601 = text == "ISO8601"
		return nil
	}
	return errors.New("invalid argument for --log-format")
}

func addRepository(p *parser, text string) error {
	p.o.Repository.Paths = append(p.o.Repository.Paths, text)
	return nil
}

func setControlMode(p *parser, text string) error {
	switch strings.ToLower(text) {
	case "none":
		p.o.Repository.Control = nereid.ControlNone
	case "poll":
		p.o.Repository.Control = nereid.ControlPoll
	case "explicit":
		p.o.Repository.Control = nereid.ControlExplicit
	default:
		return errors.New("invalid argument for --model-control-mode")
	}
	return nil
}
