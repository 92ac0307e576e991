// Generated from src/foundry_mcp/core/wire.py by `make generate`. Do not edit.

/** Why it failed; further keys depend on the code. */
export interface ErrorData {
  /** Machine-readable classification. */
  error_code?: string;
  /** Category for routing. */
  error_type?: "validation" | "authentication" | "authorization" | "not_found" | "conflict" | "rate_limit" | "feature_flag" | "internal" | "unavailable";
  /** What to do about it. */
  remediation?: string;
  /** Field or context of the failure. */
  details?: Record<string, unknown>;
  /** Whether the same call may succeed later. */
  retryable?: boolean;
  retry_after_seconds?: number;
  /** Whether a failed write happened. */
  effect?: "none" | "applied" | "unknown";
  [key: string]: unknown;
}

/** The operation failed. */
export interface Failure {
  success: false;
  data: ErrorData;
  /** Human-readable description. */
  error: string;
  meta: Meta;
}

/** This page is the last. */
export interface LastPage {
  has_more: false;
  cursor?: string | null;
  /** Total matching items, if known. */
  total_count?: number;
  /** Items per page. */
  page_size?: number;
  [key: string]: unknown;
}

/** Operational metadata; an optional key is absent rather than empty. */
export interface Meta {
  version: "response-v2";
  /** Correlation id in the answer, the log and the trace. */
  request_id?: string;
  /** Non-fatal issues. */
  warnings?: Array<string>;
  warning_details?: Array<WarningDetail>;
  pagination?: MorePages | LastPage;
  rate_limit?: RateLimit;
  telemetry?: Telemetry;
  /** How complete the answer is. */
  content_fidelity?: "full" | "partial" | "summary" | "reference_only";
  content_fidelity_schema_version?: string;
  /** What was left out. */
  dropped_content_ids?: Array<string>;
  /** Archive id to hash, to fetch what was left out. */
  content_archive_hashes?: Record<string, string>;
  /** The first answer to this idempotency key. */
  replayed?: boolean;
  [key: string]: unknown;
}

/** There is a next page, and the cursor leads to it. */
export interface MorePages {
  has_more: true;
  /** Opaque token for the next page. */
  cursor: string;
  /** Total matching items, if known. */
  total_count?: number;
  /** Items per page. */
  page_size?: number;
  [key: string]: unknown;
}

/** The quota and what is left of it. */
export interface RateLimit {
  limit?: number;
  remaining?: number;
  /** When the quota is whole again. */
  reset_at?: string | number;
  [key: string]: unknown;
}

/** The operation completed. */
export interface Success {
  success: true;
  /** Operation payload; {} when there is none. */
  data: Record<string, unknown>;
  error: null;
  meta: Meta;
}

/** Timing and other measurements of the call. */
export interface Telemetry {
  duration_ms?: number;
  cache_hit?: boolean;
  [key: string]: unknown;
}

/** A warning with severity and context. */
export interface WarningDetail {
  /** Machine-readable classification. */
  code?: string;
  severity?: "info" | "warning" | "error";
  /** Human-readable description. */
  message: string;
  /** Context of this kind of warning. */
  context?: Record<string, unknown>;
  [key: string]: unknown;
}

/** An answer in response-v2. */
export type ResponseV2 = Success | Failure;

export interface LegacyFailure {
  success: false;
  error: string;
  _warnings?: Array<string>;
  _meta?: LegacyMeta;
  [key: string]: unknown;
}

/** What response-v2 says in `meta`, in the flat form. */
export interface LegacyMeta {
  version: "response-v1";
  request_id?: string;
  [key: string]: unknown;
}

export interface LegacySuccess {
  success: true;
  error: null;
  _warnings?: Array<string>;
  _meta?: LegacyMeta;
  [key: string]: unknown;
}

/** An answer in the legacy flat form. */
export type ResponseV1 = LegacySuccess | LegacyFailure;

/** What the answer cost. */
export interface ExecutionContext {
  /** Estimated token count. */
  tokens_estimated: number;
  /** Actual tokens, if counted. */
  tokens_used?: number | null;
  /** Result from cache. */
  cache_hit: boolean;
  /** Execution time. */
  execution_time_ms: number;
  /** Matches _metadata.request_id. */
  request_id: string;
  [key: string]: unknown;
}

/** Metadata of an answer that holds none. */
export interface Failed {
  /** Tool operation name. */
  operation: string;
  /** API version. */
  version: string;
  /** ISO 8601 with timezone. */
  timestamp: string;
  /** Unique request identifier. */
  request_id: string;
  status: "error";
  /** Status message. */
  message?: string | null;
  [key: string]: unknown;
}

/** An answer that says why there are none. */
export interface KnowledgeFailure {
  _metadata: Failed;
  /** Tool-specific results. */
  results: Array<unknown>;
  pagination?: PaginationMetadata | null;
  execution_context: ExecutionContext;
  warnings: Array<ResponseWarning>;
  error: ResponseError;
}

/** An answer with results. */
export interface KnowledgeSuccess {
  _metadata: Succeeded;
  /** Tool-specific results. */
  results: Array<unknown> | Record<string, unknown>;
  pagination?: PaginationMetadata | null;
  execution_context: ExecutionContext;
  warnings: Array<ResponseWarning>;
  error?: null;
}

/** Where the next page begins. */
export interface PaginationMetadata {
  /** Base64-encoded JSON cursor. */
  cursor: string;
  /** Results per page. */
  page_size: number;
  /** More results available. */
  has_more: boolean;
  /** Total results, if known. */
  total_available?: number | null;
  [key: string]: unknown;
}

/** Why it failed; further keys depend on the code. */
export interface ResponseError {
  /** SCREAMING_SNAKE_CASE. */
  code: string;
  /** Human-readable message. */
  message: string;
  [key: string]: unknown;
}

/** Something the client may want to act on. */
export interface ResponseWarning {
  level: "info" | "warning" | "error";
  /** SCREAMING_SNAKE_CASE. */
  code: string;
  /** Human-readable message. */
  message: string;
  /** Remediation action. */
  suggestion?: string | null;
  [key: string]: unknown;
}

/** Metadata of an answer that holds results, all of them or a part. */
export interface Succeeded {
  /** Tool operation name. */
  operation: string;
  /** API version. */
  version: string;
  /** ISO 8601 with timezone. */
  timestamp: string;
  /** Unique request identifier. */
  request_id: string;
  status: "success" | "partial";
  /** Status message. */
  message?: string | null;
  [key: string]: unknown;
}

/** An answer in knowledge 1.0.0. */
export type KnowledgeResponse = KnowledgeSuccess | KnowledgeFailure;
