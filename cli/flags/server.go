package flags

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/server/rest/origins"
)

// serverFlags lists flags about the server, its log and its models.
func serverFlags() []group {
	return []group{
		{flags: []flag{
			{name: "help", help: "Show this and exit with status 1."},
		}},
		{title: "Server", flags: []flag{
			word("id", "Name of the server in its metadata.",
				func(o *Options) *string { return &o.ServerID }),
			wholeSeconds("exit-timeout-secs", "Time for requests in flight to end and models to unload at shutdown, in seconds. After that the server exits.",
				func(o *Options) *time.Duration { return &o.ExitTimeout }),
			toggle("allow-client-shm", "Allow clients to register shared memory and refer to it in requests.",
				func(o *Options) *bool { return &o.AllowClientSHM }),
		}},
		{title: "Logging", flags: []flag{
			row("log-verbose", "<integer>", "Verbosity level; 0: off. Default: 0.",
				setWith(parseVerbose, func(o *Options) *int { return &o.Log.Verbose })),
			toggle("log-info", "Log informational messages.",
				func(o *Options) *bool { return &o.Log.Info }),
			toggle("log-warning", "Log warnings.",
				func(o *Options) *bool { return &o.Log.Warning }),
			toggle("log-error", "Log errors.",
				func(o *Options) *bool { return &o.Log.Error }),
			row("log-format", "<string>", "Prefix of log lines: \"default\" (letter, month and day, time with microseconds) or \"ISO8601\" (date and time in seconds, letter). Times are UTC. Default: default.",
				setLogFormat),
			word("log-file", "Append log lines to this file. Default: information goes to standard output, warnings and errors to standard error.",
				func(o *Options) *string { return &o.Log.File }),
		}},
		{title: "Model Repository", flags: repositoryFlags()},
	}
}

func repositoryFlags() []flag {
	return []flag{
		row("model-store", "<string>", "Same as --model-repository.",
			addRepository),
		row("model-repository", "<string>", "Directory of models. May be given several times; a model in more than one of them is not served.",
			addRepository),
		toggle("exit-on-error", "Exit if a model fails to load at startup.",
			func(o *Options) *bool { return &o.ExitOnError }),
		row("disable-auto-complete-config", "", "Do not complete model configurations; each model needs a complete one.",
			func(p *parser, _ string) error {
				p.o.Repository.DisableAutoCompleteConfig = true
				return nil
			}),
		toggle("strict-readiness", "Report ready only while all models are ready; if false, whenever the server responds.",
			func(o *Options) *bool { return &o.Repository.StrictReadiness }),
		row("model-control-mode", "<string>", "Which models to load: \"none\": all, once at startup; \"poll\": all, and again when their files change; \"explicit\": those of --load-model at startup, and others on load and unload requests. Default: none.",
			setControlMode),
		wholeSeconds("repository-poll-secs", "Interval between checks of the repository in poll mode, in seconds; 0: never.",
			func(o *Options) *time.Duration { return &o.Repository.PollInterval }),
		row("load-model", "<string>", "Model to load at startup in explicit mode. May be given several times; a single \"*\" loads all models.",
			func(p *parser, text string) error {
				p.o.Repository.StartupModels = append(p.o.Repository.StartupModels, text)
				return nil
			}),
		row("model-config-name", "<string>", "Read configs/<name>.pbtxt of a model, if it exists, instead of config.pbtxt.",
			func(p *parser, text string) error {
				if text == "" {
					return errors.New("Error: empty argument for --model-config-name")
				}
				p.o.Repository.ConfigName = text
				return nil
			}),
		number("model-load-thread-count", "Number of models loaded in parallel.",
			func(o *Options) *int { return &o.Repository.LoadThreads }),
		number("model-load-retry-count", "Number of retries of a failed load.",
			func(o *Options) *int { return &o.Repository.LoadRetries }),
		toggle("model-namespacing", "Allow models of the same name in different repositories.",
			func(o *Options) *bool { return &o.Repository.Namespacing }),
		toggle("enable-peer-access", "Allow GPUs to access each other's memory.",
			func(o *Options) *bool { return &o.Memory.EnablePeerAccess }),
	}
}

// ourFlags lists flags that tritonserver lacks.
func ourFlags() []group {
	limits := group{title: "Limits", ours: true, flags: slices.Concat(limitFlags(), modelLimitFlags())}
	return []group{{title: "OpenAI", ours: true, flags: openAIFlags()}, limits, {title: "Nereid's own", ours: true, flags: slices.Concat([]flag{
		row("http-cors-allow-origin", "<string>", "Origin, such as https://example.org, whose pages may use the HTTP endpoints from a browser (CORS); \"*\": any. May be given several times. Default: none.",
			func(p *parser, text string) error {
				if _, err := origins.New([]string{text}); err != nil {
					return err
				}
				p.o.HTTP.AllowOrigins = append(p.o.HTTP.AllowOrigins, text)
				return nil
			}),
		wholeSeconds("exit-delay-secs", "Time after SIGTERM during which the server still serves, but reports that it is not ready and asks clients to reconnect elsewhere, in seconds. --exit-timeout-secs starts after it.",
			func(o *Options) *time.Duration { return &o.ExitDelay }),
		toggle("strict-outputs", "Reject outputs that are not in the model's configuration, or have another data type or shape. If false, log one warning per model and output.",
			func(o *Options) *bool { return &o.StrictOutputs }),
		row("dev", "", "Reload a model when its sources change (.py and .pbtxt files in its directory). Requests wait during the reload; after an error the last good version keeps serving. breakpoint() in a model gets the terminal. Timeouts for models are disabled.",
			func(p *parser, _ string) error {
				p.o.Repository.Develop = true
				return nil
			}),
	}, socketFlags(), recordFlags(), pageFlags(), []flag{
		{name: "version", help: "Show the version of this binary and exit."},
	})}}
}

// parseVerbose parses the verbosity, which was once a boolean.
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
