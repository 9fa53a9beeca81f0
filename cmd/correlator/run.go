package main

import (
	"os"
	"runtime"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"correlator/internal/host/timerslack"
	"correlator/internal/operate/metrics"
	"correlator/internal/operate/serve"
)

// init keeps run, and no other command, on the first thread until timerslack.Relax.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		runtime.LockOSThread()
	}
}

func (a *app) addRun() {
	options := newRunOptions()
	cmd := &cobra.Command{Use: "run", Short: "Run the agent until SIGTERM or SIGINT", Args: cobra.NoArgs}
	s := a.add(cmd, options)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if options.PrintConfig {
			a.warnOfUnknownVariables(cmd)
			return options.Print(cmd.OutOrStdout(), s)
		}
		log, err := serve.NewLogger(options.Monitoring.LogLevel, options.Monitoring.LogFormat)
		if err != nil {
			return err
		}
		// Memory that is in huge pages stays there, so that is done before Relax begins anew. Workers inherit it.
		if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
			log.Debug("huge pages are not disabled", zap.Error(err))
		}
		if err := timerslack.Relax(); err != nil {
			log.Debug("timers are not relaxed", zap.Error(err))
		}
		for _, v := range a.unknownVariables() {
			log.Warn("environment variable is no setting", zap.String("variable", v.Name),
				zap.String("nearest", v.Nearest))
		}
		return serve.Run(cmd.Context(), &options.Config, metrics.Build{Version: version, Revision: commit}, log)
	}
}
