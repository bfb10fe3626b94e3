/** Which signals tell a command to stop, and to end what it has started. SIGHUP: the terminal is gone. */
export const stopSignals = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const
